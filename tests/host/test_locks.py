import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host import locks
from simcse_jax.host.locks import describe, held, held_next_to, held_on_disk, read_owner, recover, replacing, this_job


def test_what_a_job_writes_is_what_others_read_if_it_is_sound():
    job = this_job()
    assert read_owner(job.text().encode()) == job != this_job()._replace(since=job.since)
    whose = f"process {os.getpid()} on {socket.gethostname()}, since {job.since}"
    message = f"runs/a: {whose}, is writing there; wait for its end, or choose another place"
    assert str(locks.taken("runs/a", job)) == message
    for text in (b"", b"{", b"[]", b"3", b"\xff", b'{"host": "a"}', b"[" * 100_000):
        assert read_owner(text) is None
    assert describe(None) == "another process"
    assert describe(this_job()._replace(host="\x1b[2Ja")).startswith(f"process {os.getpid()} on ?[2Ja, since ")


HOLD = """
import sys
from pathlib import Path
from simcse_jax.host.locks import held_on_disk
with held_on_disk(Path(sys.argv[1]), Path("place")):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_job_hears_of_the_first_and_a_kill_frees_the_lock(tmp_path):
    file, place = tmp_path / "new" / ".lock", tmp_path / "new"
    command = [sys.executable, "-c", HOLD, file]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"^{place}: process {other.pid} on .*, since 20.*is writing there; wait"):
            held_on_disk(file, place).__enter__()
        other.send_signal(signal.SIGKILL)
    assert file.exists()
    with held_on_disk(file, place):
        assert str(os.getpid()) in file.read_text() and str(other.pid) not in file.read_text()
    assert not list(place.iterdir())


def test_a_child_process_neither_keeps_it_nor_frees_it(tmp_path):
    file = tmp_path / ".lock"
    block = held_on_disk(file, tmp_path)
    with block:
        if not (leaves := os.fork()):
            block.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(leaves, 0)
        with pytest.raises(UserError, match=f"process {os.getpid()} on"):
            held_on_disk(file, tmp_path).__enter__()
        if not (stays := os.fork()):
            signal.pause()
        program = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert not file.exists()
        with held_on_disk(file, tmp_path):
            pass
    finally:
        program.kill()
        program.wait()
        os.kill(stays, signal.SIGKILL)
        os.waitpid(stays, 0)


def test_never_two_at_a_time_and_nothing_stays(tmp_path):
    """Each removes the file at the end, while the others open it."""
    file, inside, most, done = tmp_path / ".lock", [0], [0], [0]

    def work():
        for _ in range(200):
            try:
                with held_on_disk(file, tmp_path):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    done[0] += 1
                    inside[0] -= 1
            except UserError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)
    assert most == [1] and done[0] > 0 and not file.exists()


def fails(number):
    """A call of the system that ends with this error."""

    def call(*args):
        raise OSError(number, os.strerror(number))

    return call


def test_a_place_that_cannot_be_locked_is_reported_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for file in (tmp_path / "file" / ".lock", tmp_path / "folder", tmp_path / "link"):
        with pytest.raises(UserError, match=r"^place: cannot be written: "):
            held_on_disk(file, "place").__enter__()
    assert (tmp_path / "file").read_text() == ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails(errno.ENOSPC))
        with pytest.raises(UserError, match=r"^place: cannot be written: \.lock: No space left on device$"):
            held_on_disk(tmp_path / ".lock", "place").__enter__()
    assert len(list(tmp_path.iterdir())) == 3 and not locks._open  # a full disk leaves no lock
    monkeypatch.setattr(fcntl, "flock", fails(errno.ENOLCK))
    with held_on_disk(tmp_path / ".lock", tmp_path):  # a disk without locks is used
        pass
    warning = f"warning: {tmp_path}: a disk without locks; make sure that no other job writes there\n"
    assert capsys.readouterr().err == warning


def in_a_thread(block) -> str:
    """What another job would hear."""
    heard = []

    def enter():
        try:
            with block:
                heard.append("")
        except UserError as error:
            heard.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return heard[0]


def test_a_folder_has_its_lock_in_it_under_each_of_its_names(tmp_path):
    folder, link = tmp_path / "run", tmp_path / "link"
    link.symlink_to(folder)
    with held(folder):
        assert [path.name for path in folder.iterdir()] == [".lock"]
        assert in_a_thread(held(link)).startswith(f"{link}: process ")
        with held(link):  # the same job may take it again
            pass
        assert in_a_thread(held(folder))
    assert in_a_thread(held(folder)) == "" and not list(folder.iterdir())


def test_what_is_replaced_as_a_whole_has_its_lock_next_to_it(tmp_path):
    (tmp_path / "link.npy").symlink_to(tmp_path / "emb.npy")
    with held_next_to(tmp_path / "link.npy"):
        assert (tmp_path / ".emb.npy.lock").exists()
        assert in_a_thread(held_next_to(tmp_path / "emb.npy")).startswith(f"{tmp_path / 'emb.npy'}: process ")
        assert in_a_thread(held_next_to(tmp_path / "other.npy")) == ""
    assert in_a_thread(held_next_to(tmp_path / "emb.npy")) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["link.npy"]


@pytest.fixture(params=[True, False], ids=["swap", "rename"])
def swaps(request, monkeypatch) -> bool:
    """On a disk that can swap two folders, and on one that cannot."""
    if not request.param:
        monkeypatch.setattr(locks, "_swap", lambda one, other: False)
    return request.param


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path, swaps):
    folder = tmp_path / "deep" / "model"
    with replacing(folder) as new:
        (new / "a").write_text("1")
        assert not folder.exists() and f"model: process {os.getpid()} on " in in_a_thread(replacing(folder))
    (tmp_path / "deep" / ".model.new").mkdir()  # left by a killed process
    folder.chmod(0o700)  # nobody else may read it, nor what replaces it
    with replacing(folder) as new:
        (new / "b").write_text("2")
        assert os.listdir(folder) == ["a"]
    assert os.listdir(folder) == ["b"] and os.listdir(tmp_path / "deep") == ["model"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
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
    monkeypatch.setattr(locks, "_swap", lambda one, other: False)
    with pytest.raises(OSError, match="No space left"), replacing(tmp_path / "model"):
        pass
    assert os.listdir(tmp_path) == ["model"] and os.listdir(tmp_path / "model") == ["a"]


def test_the_swap_is_one_step_where_the_system_has_it(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "a").write_text("")
    if locks._swap(one, other):
        assert os.listdir(other) == ["a"] and not os.listdir(one)
    with pytest.raises(OSError, match="No such file"):
        locks._swap(tmp_path / "none", other)
    monkeypatch.setattr(locks, "RENAME_EXCHANGE", 1 << 20)  # as on a disk that does not know it
    assert not locks._swap(one, other)


def left_by_a_kill(folder):
    """Between the two renames."""
    for kind in ("old", "new"):
        (folder.parent / f".{folder.name}.{kind}").mkdir()
        (folder.parent / f".{folder.name}.{kind}" / kind).write_text("")


def test_the_next_reader_or_writer_puts_the_earlier_contents_back_or_names_them(tmp_path, monkeypatch):
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
    left_by_a_kill(tmp_path / "other")
    monkeypatch.setattr(os, "rename", fails(errno.EROFS))
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0)
    with pytest.raises(UserError, match=r"other: missing; what was there is in .*\.other\.old .*Read-only"):
        recover(tmp_path / "other")


def test_a_reader_waits_for_a_job_that_is_between_its_two_renames(tmp_path):
    folder = tmp_path / "model"
    left_by_a_kill(folder)
    with held_next_to(folder):
        reader = threading.Thread(target=recover, args=(folder,))
        reader.start()
        os.rename(tmp_path / ".model.new", folder)
    reader.join()
    assert os.listdir(folder) == ["new"]
