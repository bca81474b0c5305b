import fcntl
import os

import pytest

from simcse_jax.host.flock import Taken, has_name, open_alone


def test_a_file_is_had_by_one_and_is_free_after_it_is_closed(tmp_path):
    file = tmp_path / "file"
    first, has_locks = open_alone(file)
    assert has_locks and has_name(first, file) and not os.get_inheritable(first)
    os.write(first, b"mine")
    with pytest.raises(Taken) as other:
        open_alone(file)
    assert other.value.contents == b"mine"
    file.rename(tmp_path / "other")
    assert not has_name(first, file)
    os.close(first)
    second, _ = open_alone(tmp_path / "other")
    os.close(second)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        open_alone(tmp_path / "link")
    assert not (tmp_path / "file").exists()


def test_a_file_that_loses_its_name_meanwhile_needs_another_try(tmp_path, monkeypatch):
    file = tmp_path / "file"
    flock = fcntl.flock

    def and_remove(descriptor, how):
        flock(descriptor, how)
        file.unlink()

    monkeypatch.setattr("fcntl.flock", and_remove)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    assert open_alone(file) is None
    assert before is None or len(os.listdir("/proc/self/fd")) == before
