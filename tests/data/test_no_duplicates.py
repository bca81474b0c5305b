import itertools
from dataclasses import replace

import numpy as np
import pytest

from simcse_jax.data.batches import Corpus
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.no_duplicates import hashed, remaining_duplicates, separate_duplicates
from simcse_jax.data.one_source import OneSource

ROWS, BATCH = 1010, 50


@pytest.fixture(scope="module")
def texts():
    """Anchors that have three positives each on average, and lack some; a fifth of the negatives are anchors."""
    generator = np.random.default_rng(0)
    found = np.arange(3 * ROWS, dtype=np.int32).reshape(ROWS, 3)
    found[:, 0] = generator.integers(0, ROWS // 3, ROWS)
    found[::5, 2] = found[generator.permutation(ROWS)[::5], 0]
    found[1::10, 1] = found[1::10, 0]  # their own positives
    found[2::3, 2] = -1
    return found


def meetings(order, texts, size) -> int:
    """The rows of whole batches with a text of an earlier row of their batch, counted one by one."""
    found = 0
    for first in range(0, len(order) // size * size, size):
        seen: set[int] = set()
        for row in order[first : first + size].tolist():
            own = {*texts[row].tolist()} - {-1}
            found += not own.isdisjoint(seen)
            seen |= own
    return found


def of(texts, **others) -> Corpus:
    ids = np.arange(len(texts), dtype=np.int32).reshape(-1, 1, 1)
    return Corpus(ids, np.ones_like(ids, np.int8), apart=texts, **others)


def rows(batches, steps) -> np.ndarray:
    return np.concatenate([batches[step]["input_ids"].ravel() for step in steps])


def test_no_batch_has_a_text_twice_and_texts_that_are_too_often_there_are_told(texts):
    order = np.random.default_rng(1).permutation(ROWS)
    met = meetings(order, texts, BATCH)
    found = separate_duplicates(order, texts, BATCH, 3, 7)
    assert met > 50 and meetings(found, texts, BATCH) == 0 and not remaining_duplicates(found, texts, BATCH)
    np.testing.assert_array_equal(np.sort(found), np.arange(ROWS))
    assert met <= (found != order).sum() <= 2.1 * met
    np.testing.assert_array_equal(separate_duplicates(order, texts, BATCH, 3, 7), found)
    assert all((separate_duplicates(order, texts, BATCH, *other) != found).any() for other in ((4, 7), (3, 8)))
    corpus, steps = of(texts), ROWS // BATCH
    whole = corpus.batches(BATCH, 5)
    for epoch in range(3):
        found = rows(whole, range(epoch * steps, (epoch + 1) * steps))
        assert len({*found.tolist()}) == len(found) == steps * BATCH and meetings(found, texts, BATCH) == 0
    for step in (2 * steps + 3, 1, steps):  # as after a kill, it begins anywhere
        resumed = corpus.batches(BATCH, 5)
        parts = [resumed.rows(step, slice(first, first + 10))["input_ids"] for first in range(0, BATCH, 10)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[step]["input_ids"])
    assert corpus.fingerprint != of(texts[::-1]).fingerprint
    parts = of(texts[:500]), of(np.zeros((100, 3), np.int32))
    batches = OneSource(("a.csv", "b.csv"), parts).batches(BATCH, 1)
    own = rows(batches, [step for step in range(12) if batches.source(step) == 0])
    assert len(own) == 500 and meetings(own, texts, BATCH) == 0
    (line,) = batches.repeated()
    assert line.startswith("b.csv: data.no_duplicates: 98 of the 100 rows")
    made = [("a", "A"), ("a ", "a"), ("é",), ("e\u0301", "")]
    numbers = hashed(iter(made), 2)
    assert numbers.dtype == np.int32 and numbers[2, 1] == numbers[3, 1] == -1
    numbered = {(row, column): text for row, own in enumerate(made) for column, text in enumerate(own) if text}
    for (one, left), (other, right) in itertools.combinations(numbered.items(), 2):
        assert (numbers[one] == numbers[other]) == (left == right)
    assert (hashed(made, 3)[:, 2] == -1).all()
    order, texts = np.arange(6)[::-1], np.array([[0, 0, -1], [1, 1, -1], [2, 3, 3], [4, 5, -1], [6, 7, 8], [9, 9, 9]])
    np.testing.assert_array_equal(separate_duplicates(order, texts, 3, 1, 0), order)
    texts[3, 2] = 9  # one column's text is another's
    found = separate_duplicates(order, texts, 3, 1, 0)
    assert found.tolist() != order.tolist() and meetings(found, texts, 3) == 0
    order, texts = np.random.default_rng(1).permutation(400), np.arange(400, dtype=np.int32)[:, None]
    texts[:20] = 0
    found = separate_duplicates(order, texts, 20, 1, 0)
    np.testing.assert_array_equal(np.sort(np.flatnonzero(found < 20) // 20), np.arange(20))
    texts[20:27] = 0
    texts[100:200] = np.arange(50).repeat(2)[:, None] + 1000
    found = separate_duplicates(order, texts, 20, 1, 0)
    assert meetings(found, texts, 20) == 7 and {*found.tolist()} == {*range(400)}
    (line,) = remaining_duplicates(found, texts, 20)
    assert "7 of the 400 rows" in line and "in up to 27 rows, and there are 20 batches" in line
    assert of(texts).batches(20, 1).repeated() and not of(texts[27:]).batches(20, 1).repeated()
    texts = np.arange(60, dtype=np.int32)[:, None]
    corpus = of(texts, sizes=(10, 50), mixture=Mixture((40, 20)))  # the first source four times
    found, usual = (rows(of_run.batches(10, 1), range(6)) for of_run in (corpus, replace(corpus, apart=None)))
    assert meetings(found, texts, 10) == 0 < meetings(usual, texts, 10)
    np.testing.assert_array_equal(np.sort(found), np.sort(usual))
