"""Another job, which writes where a test's command wants to write."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def another_job(lock: contextlib.AbstractContextManager) -> Iterator[None]:
    """Has the lock in another thread, which is another job as far as locks are concerned."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lock.__enter__).result(10)
        try:
            yield
        finally:
            thread.submit(lock.__exit__, None, None, None).result(10)
