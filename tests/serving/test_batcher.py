import asyncio
import threading

import pytest

from simcse_jax.serving.batcher import Batcher, Piece
from simcse_jax.serving.replies import Later


def rows(most):
    return lambda length, sizes: (most, range(min(most, len(sizes))))


FOUR = rows(4)


def make(batches, choose=FOUR, go_on=None, **options):
    def run(batch):
        if go_on is not None:
            assert go_on.wait(20)
        batches.append(batch)
        if -1 in batch.payloads:
            raise RuntimeError("failed")
        return [2 * each for each in batch.payloads]

    return Batcher(run, choose, **{"most": 10, "workers": 1, "most_waiting": 100} | options)


def play(scene, *args, **options):
    async def main():
        batches = []
        batcher = make(batches, *args, **options)
        batcher.start()
        try:
            async with asyncio.timeout(20):
                return await scene(batcher, batches)
        finally:
            await batcher.close()

    return asyncio.run(main())


def taken(batcher, pieces):
    """The batches of pieces that have all arrived before the first one is taken, as (payloads, shape, group)."""

    async def main():
        waiting = asyncio.gather(*(batcher.submit([piece]) for piece in pieces))
        await asyncio.sleep(0)
        found = []
        while (one := batcher.take()) is not None:
            found.append(tuple(one[0]))
            assert [each.piece.payload for each in one[1]] == one[0].payloads
        assert batcher.waiting == 0
        waiting.cancel()
        return found

    return asyncio.run(main())


def test_a_batch_has_one_length_and_one_group_and_what_is_not_chosen_waits_as_before():
    lengths = (16, 8, 8, 16, 16, 8, 16)
    pieces = [Piece(number, length, group=number // 6) for number, length in enumerate(lengths)]
    found = taken(make([], lambda length, sizes: (length, range(min(32 // length, len(sizes))))), pieces)
    assert found == [([0, 3], 16, 0), ([1, 2, 5], 8, 0), ([4], 16, 0), ([6], 16, 1)]
    found = taken(make([]), [Piece(n, length) for n, length in enumerate((16, 8, 4, 32))])
    assert found == [([0, 1, 2], 4, 0), ([3], 4, 0)]  # never a longer one
    offered = []

    def choose(length, sizes):  # what fits into a room of 10
        offered.append(list(sizes))
        places, left = [], 10
        for place, size in enumerate(sizes):
            if size <= left:
                places.append(place)
                left -= size
        return len(places), places

    found = taken(make([], choose, most=4), [Piece(n, 16, size) for n, size in enumerate((7, 9, 2, 8, 1, 3))])
    assert offered == [[7, 9, 2, 8], [9, 8, 1, 3], [8, 3], [3]]
    assert [payloads for payloads, *_ in found] == [[0, 2], [1, 4], [3], [5]]


def test_requests_share_batches_pass_long_ones_are_refused_where_the_queue_is_full_and_can_be_cancelled():
    async def scene(batcher, batches):
        long = asyncio.create_task(batcher.submit([Piece(n) for n in range(80)]))
        await asyncio.sleep(0.01)  # ten pieces of the long one are due before what comes now
        short = asyncio.create_task(batcher.submit([Piece(1000)]))
        await asyncio.sleep(0)
        go_on.set()
        assert await short == [2000] and not long.done() and await long == [2 * n for n in range(80)]
        place = next(number for number, batch in enumerate(batches) if 1000 in batch.payloads)
        assert place < 15  # of twenty or more

    go_on = threading.Event()
    play(scene, go_on=go_on)

    async def scene(batcher, batches):
        first = asyncio.create_task(batcher.submit([Piece(n) for n in range(10)]))
        await asyncio.sleep(0.05)  # four are computed, six wait
        with pytest.raises(Later, match="try again") as refused:
            await batcher.submit([Piece(n) for n in range(5)])
        assert refused.value.headers["Retry-After"] == "5"
        second = asyncio.create_task(batcher.submit([Piece(7)] * 4))
        await asyncio.sleep(0)
        go_on.set()
        assert await first == [2 * n for n in range(10)] and await second == [14] * 4

    go_on = threading.Event()
    play(scene, go_on=go_on, most_waiting=10)

    async def scene(batcher, batches):
        found = await asyncio.gather(*map(batcher.submit, [[Piece(n), Piece(n + 1)] for n in range(0, 40, 2)]))
        assert found == [[2 * n, 2 * n + 2] for n in range(0, 40, 2)]
        assert len(batches) == 10 and batcher.waiting == 0 and await batcher.submit([]) == []
        assert [len(done.batch.payloads) for done in seen] == [4] * 10
        assert all(done.seconds >= 0 and done.waited >= 0 for done in seen)

    seen = []
    play(scene, observe=seen.append)

    async def scene(batcher, batches):
        first = asyncio.create_task(batcher.submit([Piece(1)] * 4))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.submit([Piece(2, 8), Piece(2, 16)]))
        stays = asyncio.create_task(batcher.submit([Piece(3, 8)]))
        await asyncio.sleep(0)
        assert batcher.waiting == 3
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert batcher.waiting == 1
        go_on.set()
        assert await first == [2] * 4 and await stays == [6]
        assert 2 not in [payload for batch in batches for payload in batch.payloads]

    go_on = threading.Event()
    play(scene, go_on=go_on)


def test_an_error_is_that_of_its_batch_alone_and_a_worker_that_ends_is_a_failure():
    async def scene(batcher, batches):
        both = (batcher.submit([Piece(-1, 16)]), batcher.submit([Piece(5, 8)]))
        found = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(found[0], RuntimeError) and found[1] == [10]
        assert await batcher.submit([Piece(6, 16)]) == [12]  # its worker goes on

    async def incomplete():  # a batch without all of its results
        batcher = Batcher(lambda batch: batch.payloads[1:], FOUR, most=4, workers=1, most_waiting=9)
        batcher.start()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a batch of 2 has 1 results"):
                await asyncio.wait_for(batcher.submit([Piece(1), Piece(2)]), 20)
        await batcher.close()
        assert batcher.failure is None

    play(scene, rows(1))
    asyncio.run(incomplete())

    async def scene(batcher, batches):
        assert batcher.failure is None
        asyncio.create_task(batcher.submit([Piece(1)] * 5))  # noqa: RUF006
        while batcher.failure is None:
            await asyncio.sleep(0.01)
        assert isinstance(batcher.failure, ZeroDivisionError)

    play(scene, observe=lambda done: 1 // 0)
