"""A random sample of a stream that does not fit into memory."""

import heapq
import random
from collections.abc import Callable, Iterable

from simcse_jax.data.building.tally import Tally

NOT_DRAWN = "not drawn"


def draw(units: Iterable[Callable[[], list[str]]], count: int, seed: int, tally: Tally) -> list[list[str]]:
    """Units, drawn at random without replacement, with `count` sentences in all.

    Every unit gets a random key, and those with the smallest keys are kept: a uniform sample, in memory for it alone.
    A unit that cannot be among them is not read.

    Args:
      units: each returns its sentences; one without sentences counts as dropped by whoever made it.
      count: of sentences; the last of the drawn units is cut to give this number. If there are fewer, all are taken.
      seed: of the keys.
      tally: units that are not drawn are dropped from it.

    Returns:
      The sentences of each drawn unit, in the order of the stream.
    """
    generator = random.Random(seed)
    kept: list[tuple[float, int, list[str]]] = []  # a heap: the largest key comes first
    total = 0
    for place, unit in enumerate(units):
        key = -generator.random()
        if total >= count and key < kept[0][0]:
            tally.drop(NOT_DRAWN)
            continue
        if not (sentences := unit()):
            continue
        heapq.heappush(kept, (key, place, sentences))
        total += len(sentences)
        while total - len(kept[0][2]) >= count:
            total -= len(heapq.heappop(kept)[2])
            tally.drop(NOT_DRAWN)
    if total > count:
        key, place, sentences = kept[0]
        kept[0] = key, place, sentences[: len(sentences) - (total - count)]
    return [sentences for _, _, sentences in sorted(kept, key=lambda each: each[1])]
