import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host.locks import disk
from simcse_jax.host.locks.disk import held_on_disk

HOLD = """
import sys
from pathlib import Path
from simcse_jax.host.locks.disk import held_on_disk
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


def test_a_child_process_does_not_keep_it(tmp_path):
    file = tmp_path / ".lock"
    with held_on_disk(file, tmp_path):
        forked = os.fork()
        if not forked:
            signal.pause()
        program = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with held_on_disk(file, tmp_path):
            pass
    finally:
        program.kill()
        program.wait()
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)


def test_a_fork_that_leaves_the_block_frees_nothing(tmp_path):
    file = tmp_path / ".lock"
    block = held_on_disk(file, tmp_path)
    with block:
        forked = os.fork()
        if not forked:
            block.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(forked, 0)
        with pytest.raises(UserError, match=f"process {os.getpid()} on"):
            held_on_disk(file, tmp_path).__enter__()
    assert not file.exists()


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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and done[0] > 0 and not file.exists()


def test_a_place_that_cannot_be_locked_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for file in (tmp_path / "file" / ".lock", tmp_path / "folder", tmp_path / "link"):
        with pytest.raises(UserError, match=r"^place: cannot be written: "):
            held_on_disk(file, "place").__enter__()
    assert (tmp_path / "file").read_text() == ""


def test_a_full_disk_leaves_no_lock(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError, match=r"^place: cannot be written: \.lock: No space left on device$"):
        held_on_disk(tmp_path / ".lock", "place").__enter__()
    assert not list(tmp_path.iterdir()) and not disk._open


def test_a_disk_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, capsys):
    def none(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with held_on_disk(tmp_path / ".lock", tmp_path):
        pass
    assert capsys.readouterr().err == (
        f"warning: {tmp_path}: a disk without locks; make sure that no other job writes there\n"
    )
