import os
import socket

from simcse_jax.host.locks.owner import describe, read_owner, taken, this_job


def test_what_a_job_writes_is_what_others_read():
    job = this_job()
    assert read_owner(job.text().encode()) == job != this_job()._replace(since=job.since)
    assert str(taken("runs/a", job)) == (
        f"runs/a: process {os.getpid()} on {socket.gethostname()}, since {job.since}, is writing there; "
        "wait for its end, or choose another place"
    )


def test_a_lock_that_says_nothing_or_something_odd():
    for text in (b"", b"{", b"[]", b"3", b"\xff", b'{"host": "a"}', b"[" * 100_000):
        assert read_owner(text) is None
    assert describe(None) == "another process"
    assert describe(this_job()._replace(host="\x1b[2Ja")).startswith(f"process {os.getpid()} on ?[2Ja, since ")
