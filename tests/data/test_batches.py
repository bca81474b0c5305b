import dataclasses

import numpy as np
import pytest
from support import sentences

from simcse_jax.data import batches as module
from simcse_jax.data.batches import Batches, Corpus, tokenize
from simcse_jax.data.examples import Examples
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.pairing import Pairing

EXAMPLES, BATCH, STEPS = 22, 4, 5


@pytest.fixture(scope="module")
def corpus(tokenizer):
    return tokenize(Examples((sentences(EXAMPLES, 1), sentences(EXAMPLES, 2)), 0), tokenizer, 16)


def of_lengths(lengths: np.ndarray) -> Corpus:
    """(N, C) lengths; a padded sentence has 32 places."""
    mask = (np.arange(32) < np.asarray(lengths)[:, :, None]).astype(np.int8)
    return Corpus(mask.astype(np.int32), mask)


def same(left, right) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def rows(corpus, batches, steps) -> list[int]:
    position = {example.tobytes(): row for row, example in enumerate(corpus.input_ids)}
    return [position[example.tobytes()] for step in steps for example in batches[step]["input_ids"]]


@pytest.mark.parametrize(("devices", "chunk_size"), [(1, 0), (2, 0), (2, 3), (1, 64)])
@pytest.mark.parametrize("steps", [13, 2000])
def test_a_step_s_size_has_places_for_all_that_is_encoded_together(devices, chunk_size, steps):
    corpus, batch = of_lengths(np.random.default_rng(0).integers(2, 24, (90, 2))), 16
    batches = Batches(corpus, batch, seed=5)
    programs = batches.sizes(steps, devices, chunk_size)
    sizes, which = programs.tokens, [programs.of(step) for step in range(steps)]
    together, ends = min(chunk_size or batch, batch // devices), []
    for step in range(steps):
        rows = np.split(batches[step]["attention_mask"].sum(axis=2), devices)
        parts = [part[first : first + together].sum(axis=0) for part in rows for first in range(0, len(part), together)]
        ends.append(np.max(parts, axis=0))
    most = np.array(ends)
    assert len(sizes) == (2 if steps == 2000 else 1)
    assert np.all(most <= np.array(sizes)[which])
    if len(sizes) == 2:
        assert sum(sizes[0]) <= 0.95 * sum(sizes[1])
        fits = np.all(most <= sizes[0], axis=1)
        np.testing.assert_array_equal(which, ~fits)  # the smaller one wherever it fits
        assert 0.75 < fits.mean() < 1
    assert sum(sizes[-1]) < 2 * together * 32
    assert sizes == Batches(corpus, batch, seed=6).sizes(steps, devices, chunk_size)[0]  # one program for all seeds


def test_sizes_fit_the_largest_batch_and_sources_count_as_often_as_they_are_read(corpus, monkeypatch):
    lengths = np.full((1000, 1), 4)
    order = np.random.Generator(np.random.Philox(key=[0, 0])).permutation(1000)
    lengths[order[:8]] = 32  # a whole batch of them
    assert Batches(of_lengths(lengths), 8, seed=0).sizes(125, 1)[0] == ((),)  # as many tokens as places
    lengths[order[5:8]] = 4
    assert Batches(of_lengths(lengths), 8, seed=0).sizes(125, 1)[0] == ((5 * 32 + 3 * 4,),)
    for length, steps, size in ((31, 5, ()), (16, 5, (4 * 16,)), (16, 5000, (4 * 16,))):
        assert Batches(of_lengths(np.full((20, 1), length)), 4, seed=0).sizes(steps, 1)[0] == (size,)
    # Short rows, and long ones that have half of the turns: no batch would fit what fits rows that are read once.
    lengths = np.concatenate([np.full(90, 4), np.full(10, 24)])[:, None]
    mixed = dataclasses.replace(of_lengths(lengths), sizes=(90, 10), mixture=Mixture((50, 50)))
    repeated = of_lengths(np.repeat(lengths, [5] * 90 + [45] * 10, axis=0))  # the same rows, as often as they are read
    weighted, expected = (Batches(each, 16, seed=0).sizes(1000, 1) for each in (mixed, repeated))
    assert weighted.tokens[0] == expected.tokens[0] and len(weighted.tokens) == 2
    assert 0.8 < np.mean([weighted.of(step) == 0 for step in range(1000)]) < 1
    batches = Batches(corpus, BATCH, 0)
    whole = batches.sizes(4, 1)
    monkeypatch.setattr(module, "LOOKED_AT", 4)
    long = batches.sizes(2**31 - 1, 1)
    assert long.tokens[-1] == () and long.tokens[1] == whole.tokens[0]  # padding stays where nothing was counted
    assert [long.of(step) == whole.of(step) for step in range(4)] == [True] * 4
    assert {long.of(step) for step in (4, 5, 2**31 - 2)} == {len(long.tokens) - 1}


def test_a_batch_of_a_seed_and_step_has_all_that_belongs_to_its_examples_once_an_epoch(corpus, tokenizer):
    assert [of_lengths(np.ones((n, 1))).steps_per_epoch(4) for n in (22, 24, 3, 4)] == [5, 6, 0, 1]
    runs = [(seed, epoch * STEPS) for seed in (0, 1, 42) for epoch in (0, 1, 7)]
    orders = [tuple(rows(corpus, Batches(corpus, BATCH, seed), range(first, first + STEPS))) for seed, first in runs]
    assert all(len(order) == len(set(order)) == STEPS * BATCH for order in orders)
    assert len(set(orders)) == len(orders)
    in_order, used = Batches(corpus, BATCH, seed=3), Batches(corpus, BATCH, seed=3)
    expected = [in_order[step] for step in range(3 * STEPS)]
    for step in np.random.default_rng(0).permutation(3 * STEPS).tolist():
        assert same(used[step], expected[step])
        assert same(Batches(corpus, BATCH, seed=3)[step], expected[step])
    for each in (corpus, dataclasses.replace(corpus, pairing=Pairing(1, fresh=False))):
        batches = Batches(each, BATCH, 3)
        assert all(batches.tokens(step) == batches[step]["attention_mask"].sum() > 0 for step in (0, STEPS, 1))
        assert not batches.is_reading(0)
    ids = np.arange(24, dtype=np.int32).reshape(12, 1, 2)
    batches = Batches(Corpus(ids, np.ones_like(ids, dtype=np.int8), group=3), 6, seed=1)
    for step in range(4):
        own = batches[step]["input_ids"][:, 0, 0] // 2
        assert (own.reshape(2, 3) == own[::3, None] + np.arange(3)).all() and (own[::3] % 3 == 0).all()
    orders = [np.concatenate([batches[2 * epoch + step]["input_ids"] for step in (0, 1)]).ravel() for epoch in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(24)) and (orders[0] != orders[1]).any()
    plain, batch = Batches(corpus, BATCH, 0), Batches(corpus, BATCH, 0)[0]
    assert batch.keys() == {"input_ids", "attention_mask", "index"}
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (BATCH, 2, 16)
    np.testing.assert_array_equal(batch["index"], np.arange(BATCH))
    assert {value.dtype for value in batch.values()} == {np.dtype(np.int32)}
    numbers = np.arange(2 * EXAMPLES, dtype=np.int32).reshape(EXAMPLES, 2)
    arrays = {"labels": numbers[:, 0] // 2, "texts": numbers // 3, "present": numbers % 3 > 0}
    arrays["scores"] = np.float32(numbers) / 7
    full = dataclasses.replace(corpus, **arrays)
    changed = [dataclasses.replace(corpus, **{name: array}).fingerprint for name, array in arrays.items()]
    changed += [dataclasses.replace(corpus, input_ids=corpus.input_ids[::-1]).fingerprint, full.fingerprint]
    assert len({corpus.fingerprint, *changed}) == 7
    for step in (0, 3, STEPS + 1):
        own, batch = rows(corpus, plain, [step]), Batches(full, BATCH, 0)[step]
        part = Batches(full, BATCH, 0).rows(step, slice(1, 3))
        assert all(np.array_equal(part[name], batch[name][1:3]) for name in batch)
        for name, array in arrays.items():
            np.testing.assert_array_equal(batch.pop(name.removesuffix("s")), array[own])
        np.testing.assert_array_equal(batch["attention_mask"], corpus.attention_mask[own])
        assert same(batch, plain[step])
    for words, most, length in (
        (1, 32, 8),
        (6, 32, 8),
        (7, 32, 16),
        (14, 32, 16),
        (15, 32, 24),
        (40, 30, 30),
        (18, 20, 20),
    ):
        labels = np.array([2, 0], np.int32)
        corpus = tokenize(Examples((["cat", "cat " * words], ["cat", "cat"]), 0, labels), tokenizer, most)
        assert corpus.input_ids.shape == corpus.attention_mask.shape == (2, 2, length)
        assert corpus.attention_mask[:, 0].sum(-1).tolist() == [3, min(words + 2, most)]
        assert corpus.input_ids[1, 0, min(words + 2, most) - 1] == 3  # [SEP] survives the cut
        assert corpus.input_ids[0, 0, :4].tolist() == [2, 5 + 1, 3, 0] and corpus.labels.tolist() == [2, 0]
        np.testing.assert_array_equal(corpus.attention_mask != 0, corpus.input_ids != 0)
