"""Runs work that arrives in pieces as batches of pieces of similar length, in a few threads.

All state belongs to the event loop's thread; only `run` is called in others.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simcse_jax.serving.replies import Later

SPREAD = 1e-3  # seconds: the n-th piece of a request counts as if it had come n times as much later
RETRY = 5.0  # seconds after which to ask again


class Piece(NamedTuple):
    """A unit of work that is done together with others of its group."""

    payload: Any
    length: int = 0  # of the rows that it needs
    size: int = 1  # what it takes of a batch's room
    group: int = 0


class PieceBatch(NamedTuple):
    """Pieces that are done together."""

    payloads: list[Any]
    shape: Any  # what was chosen for them
    group: int


class Done(NamedTuple):
    """The outcome of a batch, for figures."""

    batch: PieceBatch
    seconds: float
    waited: float  # seconds, of the piece that waited longest


class _Request:
    def __init__(self, count: int, answered: asyncio.Future[None]):
        self.results: list[Any] = [None] * count
        self.left, self.arrived, self.answered = count, time.monotonic(), answered


class _Waiting(NamedTuple):
    due: float
    number: int  # makes the order total
    piece: Piece
    request: _Request
    place: int


class Batcher:
    """Puts pieces of requests into batches, the oldest first.

    A batch has the oldest piece, others of its group and length, and shorter ones where there is room. The n-th piece
    of a request waits as if it had come n milliseconds later, so that short requests pass a long one, which
    nevertheless goes on.
    """

    def __init__(
        self,
        run: Callable[[PieceBatch], Iterable[Any]],
        choose: Callable[[int, Sequence[int]], tuple[Any, Sequence[int]]],
        *,
        most: int,
        workers: int,
        most_waiting: int,
        observe: Callable[[Done], object] = lambda done: None,
    ):
        """Takes requests after `start`.

        Args:
          run: the results of a batch, in its order; called in a thread.
          choose: the shape of a batch with rows of this length, and which of the pieces with these sizes are in it, the
            first one always.
          most_waiting: pieces that may wait; more are refused.
        """
        self._run, self._choose, self._most, self._workers = run, choose, most, workers
        self._most_waiting, self._observe = most_waiting, observe
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batch")
        self._queues: dict[tuple[int, int], list[_Waiting]] = {}  # heaps, by group and length
        self._numbers = itertools.count()
        self._some = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.waiting = 0  # pieces

    @property
    def failure(self) -> BaseException | None:
        """The error that ended a worker: a bug in this program, since errors of `run` end none."""
        return next((task.exception() for task in self._tasks if task.done() and not task.cancelled()), None)

    def start(self) -> None:
        """Starts the workers, in a running event loop."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]

    async def close(self) -> None:
        """Ends the workers. Batches that run are waited for, pieces that wait are left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown)

    async def submit(self, pieces: Sequence[Piece]) -> list[Any]:
        """The results of all pieces, in their order. Cancelling the call drops its pieces.

        Raises:
          Later: when too many pieces wait.
          Exception: what `run` raised for a batch with one of them.
        """
        if not pieces:
            return []
        if self.waiting + len(pieces) > self._most_waiting:
            raise Later(429, "too many inputs are waiting; try again", RETRY)
        request = _Request(len(pieces), asyncio.get_running_loop().create_future())
        for place, piece in enumerate(pieces):
            self._push(_Waiting(request.arrived + place * SPREAD, next(self._numbers), piece, request, place))
        self._some.set()
        try:
            await request.answered
        except BaseException:  # this request is over: none of its pieces is worth computing
            self._forget(request)
            raise
        return request.results

    def _push(self, entry: _Waiting) -> None:
        heapq.heappush(self._queues.setdefault((entry.piece.group, entry.piece.length), []), entry)
        self.waiting += 1

    def _forget(self, request: _Request) -> None:
        for key, queue in [*self._queues.items()]:
            remaining = [entry for entry in queue if entry.request is not request]
            self.waiting -= len(queue) - len(remaining)
            heapq.heapify(remaining)
            self._queues[key] = remaining
            if not remaining:
                del self._queues[key]

    def take(self) -> tuple[PieceBatch, list[_Waiting]] | None:
        """Removes the next batch from those that wait; None when there is none."""
        if not self._queues:
            self._some.clear()
            return None
        group, length = min(self._queues, key=lambda key: self._queues[key][0])
        offered: list[_Waiting] = []
        shorter = sorted((key for key in self._queues if key[0] == group and key[1] <= length), key=lambda key: -key[1])
        for key in shorter:
            while self._queues[key] and len(offered) < self._most:
                offered.append(heapq.heappop(self._queues[key]))
            if not self._queues[key]:
                del self._queues[key]
        self.waiting -= len(offered)
        shape, places = self._choose(length, [entry.piece.size for entry in offered])
        taken = [offered[place] for place in places]
        for place in {*range(len(offered))}.difference(places):
            self._push(offered[place])
        return PieceBatch([entry.piece.payload for entry in taken], shape, group), taken

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while (taken_batch := self.take()) is None:
                await self._some.wait()
            batch, taken = taken_batch
            started = time.monotonic()
            waited = started - min(entry.request.arrived for entry in taken)
            try:
                results = [*await loop.run_in_executor(self._pool, self._run, batch)]
                if len(results) != len(taken):
                    raise RuntimeError(f"a batch of {len(taken)} has {len(results)} results")
            except Exception as error:
                for entry in taken:
                    if not entry.request.answered.done():
                        entry.request.answered.set_exception(error)
                continue
            for entry, result in zip(taken, results, strict=True):
                request = entry.request
                request.results[entry.place] = result
                request.left -= 1
                if not request.left and not request.answered.done():
                    request.answered.set_result(None)
            seconds = time.monotonic() - started
            self._observe(Done(batch, seconds, waited))
