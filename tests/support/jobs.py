"""Another job, which writes where a test's command wants to write."""

import contextlib
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def another_job(lock: contextlib.AbstractContextManager) -> Iterator[None]:
    """Has the lock in another thread, which is another job as far as locks are concerned."""
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        with lock:
            begun.set()
            end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    try:
        yield
    finally:
        end.set()
        thread.join()
