import errno
import os
import subprocess
import sys
import threading

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host.locks import replace
from simcse_jax.host.locks.lock import held_next_to
from simcse_jax.host.locks.replace import recover, replacing


@pytest.fixture(params=[True, False], ids=["swap", "rename"])
def swaps(request, monkeypatch) -> bool:
    """On a disk that can swap two folders, and on one that cannot."""
    if not request.param:
        monkeypatch.setattr(replace, "_swap", lambda one, other: False)
    return request.param


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path, swaps):
    folder = tmp_path / "deep" / "model"
    with replacing(folder) as new:
        (new / "a").write_text("1")
        assert not folder.exists()
    (tmp_path / "deep" / ".model.new").mkdir()  # left by a killed process
    with replacing(folder) as new:
        (new / "b").write_text("2")
        assert os.listdir(folder) == ["a"]
    assert os.listdir(folder) == ["b"] and os.listdir(tmp_path / "deep") == ["model"]
    with pytest.raises(ZeroDivisionError), replacing(folder) as new:
        (new / "c").write_text("3")
        raise ZeroDivisionError
    assert os.listdir(folder) == ["b"] and os.listdir(tmp_path / "deep") == ["model"]


def test_a_folder_that_cannot_be_replaced_is_unchanged(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("1")
    rename = os.rename

    def fail(source, target):
        if str(source).endswith(".new"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    monkeypatch.setattr(replace, "_swap", lambda one, other: False)
    with pytest.raises(OSError, match="No space left"), replacing(tmp_path / "model"):
        pass
    assert os.listdir(tmp_path) == ["model"] and os.listdir(tmp_path / "model") == ["a"]


def test_the_swap_is_one_step_where_the_system_has_it(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "a").write_text("")
    if replace._swap(one, other):
        assert os.listdir(other) == ["a"] and not os.listdir(one)
    with pytest.raises(OSError, match="No such file"):
        replace._swap(tmp_path / "none", other)
    monkeypatch.setattr(replace, "RENAME_EXCHANGE", 1 << 20)  # as on a disk that does not know it
    assert not replace._swap(one, other)


def test_a_second_job_is_refused(tmp_path):
    with replacing(tmp_path / "model") as new:
        (new / "a").write_text("1")
        code = "import sys; from pathlib import Path; from simcse_jax.host.locks.replace import replacing\n"
        code += "with replacing(Path(sys.argv[1])): pass"
        done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True)
        assert f"model: process {os.getpid()} on " in done.stderr.splitlines()[-1], done.stderr
    assert os.listdir(tmp_path / "model") == ["a"]


def left_by_a_kill(folder):
    """Between the two renames."""
    for kind in ("old", "new"):
        (folder.parent / f".{folder.name}.{kind}").mkdir()
        (folder.parent / f".{folder.name}.{kind}" / kind).write_text("")


def test_the_next_reader_or_writer_puts_the_earlier_contents_back(tmp_path):
    folder = tmp_path / "model"
    left_by_a_kill(folder)
    recover(folder)
    recover(folder)
    assert os.listdir(folder) == ["old"]
    os.rename(folder, tmp_path / ".model.old")
    with pytest.raises(ZeroDivisionError), replacing(folder):
        assert os.listdir(folder) == ["old"]
        raise ZeroDivisionError
    assert os.listdir(folder) == ["old"] and os.listdir(tmp_path) == ["model"]


def test_a_reader_waits_for_a_job_that_is_between_its_two_renames(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    left_by_a_kill(folder)
    with held_next_to(folder):
        reader = threading.Thread(target=recover, args=(folder,))
        reader.start()
        os.rename(tmp_path / ".model.new", folder)
    reader.join()
    assert os.listdir(folder) == ["new"]


def test_contents_that_cannot_be_put_back_are_named(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.EROFS, "Read-only file system")

    left_by_a_kill(tmp_path / "model")
    monkeypatch.setattr(os, "rename", fail)
    monkeypatch.setattr(replace, "WAIT_SECONDS", 0)
    with pytest.raises(UserError, match=r"model: missing; what was there is in .*\.model\.old .*Read-only"):
        recover(tmp_path / "model")
