import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host import locks
from simcse_jax.host.locks import held, held_next_to, replacing

OTHERS = "another job is writing there; wait for its end, or choose another place"
HOLD = """
import sys
from pathlib import Path
from simcse_jax.host.locks import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_job_is_refused_and_a_kill_frees_the_lock(tmp_path):
    place = tmp_path / "new"
    command = [sys.executable, "-c", HOLD, place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"^{place}: {OTHERS}$"):
            held(place).__enter__()
        other.send_signal(signal.SIGKILL)
    assert os.listdir(place) == [".lock"]
    with held(place):
        pass
    assert not list(place.iterdir())


def test_a_child_process_neither_keeps_it_nor_frees_it(tmp_path):
    file = tmp_path / ".lock"
    block = held(tmp_path)
    with block:
        if not (leaves := os.fork()):
            block.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(leaves, 0)
        assert OTHERS in in_a_thread(held(tmp_path))
        if not (stays := os.fork()):
            signal.pause()
        program = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert not file.exists()
        with held(tmp_path):
            pass
    finally:
        program.kill()
        program.wait()
        os.kill(stays, signal.SIGKILL)
        os.waitpid(stays, 0)


def test_never_two_at_a_time_and_nothing_stays(tmp_path):
    """Each removes the file at the end, while the others open it."""
    inside, most, done = [0], [0], [0]

    def work():
        for _ in range(200):
            try:
                with held(tmp_path):
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
    assert most == [1] and done[0] > 0 and not list(tmp_path.iterdir())


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
        assert in_a_thread(held(link)) == f"{link}: {OTHERS}"
        with held(link):  # the same job may take it again
            pass
        assert in_a_thread(held(folder))
    assert in_a_thread(held(folder)) == "" and not list(folder.iterdir())


def test_what_is_replaced_as_a_whole_has_its_lock_next_to_it(tmp_path):
    (tmp_path / "link.npy").symlink_to(tmp_path / "emb.npy")
    with held_next_to(tmp_path / "link.npy"):
        assert (tmp_path / ".emb.npy.lock").exists()
        assert in_a_thread(held_next_to(tmp_path / "emb.npy")) == f"{tmp_path / 'emb.npy'}: {OTHERS}"
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
        assert not folder.exists() and "another job is writing" in in_a_thread(replacing(folder))
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


def test_the_next_writer_puts_back_what_a_kill_left_between_two_renames(tmp_path):
    folder = tmp_path / "model"
    for kind in ("old", "new"):
        (tmp_path / f".model.{kind}").mkdir()
        (tmp_path / f".model.{kind}" / kind).write_text("")
    with pytest.raises(ZeroDivisionError), replacing(folder):
        assert os.listdir(folder) == ["old"]
        raise ZeroDivisionError
    assert os.listdir(folder) == ["old"] and os.listdir(tmp_path) == ["model"]
