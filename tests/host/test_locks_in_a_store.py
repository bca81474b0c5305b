import signal
import subprocess
import sys
import threading
import time

import pytest
from support.object_store import NEEDS_GCSFS, WRITING

from simcse_jax.errors import UserError
from simcse_jax.host import locks
from simcse_jax.host.locks import held, read_owner, this_job
from simcse_jax.host.storage import as_path

pytestmark = NEEDS_GCSFS
HOLD = """
import sys
from simcse_jax.host import locks
from simcse_jax.host.locks import held
from simcse_jax.host.storage import as_path
locks.HEARTBEAT = 0.1
with held(as_path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in (("HEARTBEAT", 0.1), ("LOST", 0.8), ("LOOK", 0.05)):
        monkeypatch.setattr(locks, name, seconds)


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
        assert read_owner(store.text("one/.lock").encode()).process == other.pid
        with pytest.raises(UserError, match=f"^gs://bucket/one: process {other.pid} on .*is writing there"):
            held(folder).__enter__()
        assert f"gs://bucket/one: process {other.pid} on " in capfd.readouterr().err
        other.send_signal(signal.SIGKILL)
    generation = store.objects["one/.lock"].generation
    start = time.monotonic()
    with held(folder) as check:
        assert time.monotonic() > start + 0.8
        check()
        assert store.objects["one/.lock"].generation > generation
    assert not store.names("one/")


def test_one_of_several_that_start_at_once_has_it(store):
    folder, heard, end = as_path("gs://bucket/many"), [], threading.Event()

    def enter():
        try:
            with held(folder):
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


def test_an_owner_that_was_out_of_reach_notices_that_it_was_replaced(store, monkeypatch):
    other = this_job()._replace(host="other-host")
    with held(as_path("gs://bucket/lost")) as check:
        store.put("lost/.lock", other.text().encode())  # as the next owner does after `LOST`
        with pytest.raises(UserError, match=r"process .* on other-host, since .*, has taken over, since this job"):
            check()
        wait_for(lambda: not [each for each in threading.enumerate() if "_renew_regularly" in each.name])
        with pytest.raises(UserError, match="has taken over"):
            check()
    assert read_owner(store.text("lost/.lock").encode()) == other  # which is not removed


def test_an_answer_that_was_lost_is_no_other_job(store, monkeypatch):
    """The client repeats a request whose answer did not arrive, and its condition no longer holds."""
    with held(as_path("gs://bucket/again")) as check:
        wait_for(lambda: "again/.lock" in store.objects)
        store.put("again/.lock", store.objects["again/.lock"].data)
        check()
    assert not store.names("again/")


def test_a_store_that_refuses_is_reported_and_one_that_fails_for_a_moment_is_not(store, monkeypatch):
    folder = as_path("gs://bucket/refused")
    with held(folder) as check:
        monkeypatch.setattr(store, "refused", WRITING)
        check()  # what is written next reports it
        with (
            monkeypatch.context() as patch,
            pytest.raises(UserError, match=r"^gs://bucket/refused/\.lock: cannot be wr"),
        ):
            patch.setattr(locks, "LOST", 0)
            check()
        time.sleep(0.3)
        monkeypatch.setattr(store, "refused", None)
        generation = store.objects["refused/.lock"].generation
        wait_for(lambda: store.objects["refused/.lock"].generation > generation)
        check()
        monkeypatch.setattr(store, "refused", WRITING)
    monkeypatch.setattr(store, "refused", None)
    store.delete("refused/.lock")
    monkeypatch.setattr(store, "refused", WRITING)
    with pytest.raises(UserError, match=r"^gs://bucket/refused/\.lock: cannot be written: .*permission$"):
        held(folder).__enter__()
