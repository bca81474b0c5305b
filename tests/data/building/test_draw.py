from collections import Counter

from simcse_jax.data.building.draw import draw
from simcse_jax.data.building.tally import Tally


def units(sizes, read):
    """Units of so many sentences, which note that they were read."""

    def unit(number, size):
        read.append(number)
        return [f"{number}.{place}" for place in range(size)]

    for number, size in enumerate(sizes):
        yield lambda number=number, size=size: unit(number, size)


def test_a_sample_has_the_count_in_the_order_of_the_stream():
    read: list[int] = []
    tally = Tally("pages")
    tally.read = 500
    found = draw(units([1, 2, 3, 0, 4] * 100, read), 50, 7, tally)
    flat = [sentence for unit in found for sentence in unit]
    assert len(flat) == 50 and [float(s.split(".")[0]) for s in flat] == sorted(float(s.split(".")[0]) for s in flat)
    cut = [unit for unit in found if len(unit) != [1, 2, 3, 0, 4][int(unit[0].split(".")[0]) % 5]]
    assert len(cut) <= 1 and len(read) < 250  # most units cannot be among the sample, and are not read
    empty = sum(number % 5 == 3 for number in read)
    assert tally.used == len(found) + empty
    assert found == draw(units([1, 2, 3, 0, 4] * 100, []), 50, 7, Tally("pages"))
    assert found != draw(units([1, 2, 3, 0, 4] * 100, []), 50, 8, Tally("pages"))


def test_each_unit_is_as_likely_as_another():
    counts = Counter(unit[0] for seed in range(400) for unit in draw(units([1] * 10, []), 3, seed, Tally("sentences")))
    assert sum(counts.values()) == 1200 and all(85 < counts[f"{n}.0"] < 155 for n in range(10))


def test_too_few_are_all_taken():
    assert draw(units([1, 2], []), 9, 1, Tally("pages")) == [["0.0"], ["1.0", "1.1"]]
    assert draw(units([], []), 9, 1, Tally("pages")) == []
