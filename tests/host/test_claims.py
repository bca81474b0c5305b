import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.object_store import NEEDS_GCSFS, WRITING

from simcse_jax.errors import UserError
from simcse_jax.host import claims
from simcse_jax.host.claims import StoredLock, held_in_store, read_job, this_job
from simcse_jax.host.storage import Folder, as_path, lock_of, remove, write_atomically

pytestmark = NEEDS_GCSFS
HOLD = """
import sys
from simcse_jax.host import claims
from simcse_jax.host.claims import held_in_store
from simcse_jax.host.storage import as_path
claims.HEARTBEAT = 0.1
with held_in_store(as_path(sys.argv[1]) / '.lock', as_path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in (("HEARTBEAT", 0.1), ("LOST", 0.8), ("LOOK", 0.05)):
        monkeypatch.setattr(claims, name, seconds)


def wait_for(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_owner_renews_it_and_a_second_job_hears_of_the_first_until_it_is_killed(store, capfd):
    folder = as_path("gs://bucket/one")
    command = [sys.executable, "-c", HOLD, "gs://bucket/one"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert read_job(store.text("one/.lock").encode()).process == other.pid
        with pytest.raises(UserError, match=f"^gs://bucket/one: process {other.pid} on .*is writing there"):
            held_in_store(folder / ".lock", folder).__enter__()
        assert f"gs://bucket/one: process {other.pid} on " in capfd.readouterr().err
        other.send_signal(signal.SIGKILL)
    generation = store.objects["one/.lock"].generation
    start = time.monotonic()
    with held_in_store(folder / ".lock", folder):
        assert time.monotonic() > start + 0.8
        assert store.objects["one/.lock"].generation > generation
    assert not store.names("one/")


def test_one_of_several_that_start_at_once_has_it(store):
    folder, heard, end = as_path("gs://bucket/many"), [], threading.Event()

    def enter():
        try:
            with held_in_store(folder / ".lock", folder):
                heard.append("held")
                end.wait(20)
        except UserError as error:
            heard.append(str(error))

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(heard) == 4)
    end.set()
    for thread in threads:
        thread.join()
    assert sorted(text == "held" for text in heard) == [False, False, False, True], heard
    assert not store.names("many/")


def change(path: Folder, how: str, file: Path) -> None:
    """Changes an object in each of the ways in which the package does."""
    if how == "removed":
        remove(path)
    elif how == "written":
        write_atomically(path, "mine")
    else:
        file.write_text("mine")
        lock_of(path).write(path, file)


@pytest.mark.parametrize("how", ["written", "uploaded", "removed"])
def test_an_owner_that_stood_still_changes_nothing_that_the_next_one_wrote(store, tmp_path, monkeypatch, how):
    folder, other = as_path("gs://bucket/lost"), this_job()._replace(host="other-host")

    def take_over():  # as the next owner does after `LOST`
        store.put("lost/.lock", other.text().encode())
        store.put("lost/file", b"theirs")

    for moment in ("before", "between its look at the lock and its write"):
        store.objects.clear()
        with held_in_store(folder / ".lock", folder):
            change(folder / "file", how, tmp_path / "file")
            assert (how == "removed") == ("lost/file" not in store.objects)
            store.put("lost/file", b"mine")
            if moment == "before":
                take_over()
            else:
                looks = iter([take_over])
                real = StoredLock.check
                monkeypatch.setattr(StoredLock, "check", lambda lock: (real(lock), next(looks, lambda: None)()))
            for _ in range(2):
                with pytest.raises(UserError, match=r"process .* on other-host, since .*, has taken over, since this"):
                    change(folder / "file", how, tmp_path / "file")
        monkeypatch.undo()
        assert store.text("lost/file") == "theirs"
        assert read_job(store.text("lost/.lock").encode()) == other  # which is not removed


def test_a_late_write_of_an_earlier_owner_does_not_stop_the_next_one(store, monkeypatch):
    folder, real, late = as_path("gs://bucket/late"), StoredLock.check, iter([b"theirs"])
    with held_in_store(folder / ".lock", folder):
        monkeypatch.setattr(StoredLock, "check", lambda lock: [store.put("late/file", data) for data in late])
        write_atomically(folder / "file", "mine")
        monkeypatch.setattr(StoredLock, "check", real)
        assert store.text("late/file") == "mine"


def test_an_answer_that_was_lost_is_no_other_job(store):
    """The client repeats a request whose answer did not arrive, and its condition no longer holds."""
    folder = as_path("gs://bucket/again")
    with held_in_store(folder / ".lock", folder):
        generation = int(store.put("again/.lock", store.objects["again/.lock"].data)["generation"])
        write_atomically(folder / "file", "")
        wait_for(lambda: store.objects["again/.lock"].generation > generation)
    assert store.names("again/") == ["again/file"]


def test_a_store_that_refuses_is_reported_and_one_that_fails_for_a_moment_is_not(store, monkeypatch):
    folder = as_path("gs://bucket/refused")
    with held_in_store(folder / ".lock", folder):
        monkeypatch.setattr(store, "refused", WRITING)
        with pytest.raises(UserError, match=r"^gs://bucket/refused/file: cannot be written: .*permission$"):
            write_atomically(folder / "file", "")
        time.sleep(0.3)
        monkeypatch.setattr(store, "refused", None)
        generation = store.objects["refused/.lock"].generation
        wait_for(lambda: store.objects["refused/.lock"].generation > generation)
        write_atomically(folder / "file", "")
        monkeypatch.setattr(store, "refused", WRITING)
    monkeypatch.setattr(store, "refused", None)
    store.delete("refused/.lock")
    monkeypatch.setattr(store, "refused", WRITING)
    with pytest.raises(UserError, match=r"^gs://bucket/refused/\.lock: cannot be written: .*permission$"):
        held_in_store(folder / ".lock", folder).__enter__()
