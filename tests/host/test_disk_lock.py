import errno

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host.disk_lock import locked
from simcse_jax.host.locks import held


def test_a_place_that_cannot_be_locked_is_reported_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for file in (tmp_path / "file" / ".lock", tmp_path / "folder", tmp_path / "link"):
        with pytest.raises(UserError, match=r"^place: cannot be written: "):
            locked(file, "place").__enter__()

    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with held(tmp_path):  # a disk without locks is used
        pass
    warning = f"warning: {tmp_path}: a disk without locks; make sure that no other job writes there\n"
    assert capsys.readouterr().err == warning
