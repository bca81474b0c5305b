import dataclasses

import numpy as np
import pytest
from support.data import raises
from support.tokenized import random_corpus

from simcse_jax.data.corpora import TeacherEmbeddings
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.one_source import OneSource
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.tokens import Prompts

BATCH = 4


@pytest.fixture
def corpus():
    return OneSource(("a", "b"), (random_corpus(30, 3, 24, 0), random_corpus(22, 2, 16, 1)))


@pytest.mark.parametrize("few", [True, False])
def test_there_are_at_most_two_programs_a_shape_and_each_has_room_for_its_batches(corpus, few, monkeypatch):
    """Two sources of one shape, and one of another."""
    if not few:
        monkeypatch.setattr("simcse_jax.data.batches.MANY_STEPS", 1)
    names, parts = ("a", "b", "c"), (*corpus.parts, random_corpus(40, 2, 16, 2))
    batches = OneSource(names, parts).batches(BATCH, 3)
    found = batches.sizes(60, 2)
    by_shape = [{0: 0, 1: 1, 2: 1}[source] for source in found.sources]
    assert max(by_shape.count(0), by_shape.count(1)) == (1 if few else 2)
    used = set()
    for step in range(60):
        program, source = found.of(step), batches.source(step)
        used.add(program)
        assert parts[found.sources[program]].shape == parts[source].shape
        mask = batches[step]["attention_mask"]
        room = found.tokens[program] or (1 << 20,) * mask.shape[1]
        assert all((half.sum(axis=(0, 2)) <= room).all() for half in (mask[:2], mask[2:]))
    assert used == set(range(len(found.tokens)))
    padded = batches.sizes(60, 2, unpad=False)
    assert padded.tokens == ((), ()) and {padded.of(step) for step in range(60)} == {0, 1}


def test_a_batch_is_of_one_source_by_seed_and_step_and_sources_share_a_teacher_and_programs(corpus):
    assert corpus.steps_per_epoch(BATCH) == 7 + 5 and corpus.num_rows == 52
    assert corpus.num_columns == 3 and corpus.fewest_columns == 2
    batches = corpus.batches(BATCH, 5)
    for epoch in range(2):
        seen = {3: [], 2: []}
        for step in range(epoch * 12, (epoch + 1) * 12):
            batch, part = batches[step], corpus.parts[batches.source(step)]
            assert batch["input_ids"].shape == (BATCH, *part.input_ids.shape[1:])
            assert batches.tokens(step) == batch["attention_mask"].sum() and not batches.is_reading(step)
            seen[batch["input_ids"].shape[1]] += batch["input_ids"][:, 0, 0].tolist()
        assert [len(set(rows)) for rows in seen.values()] == [len(rows) for rows in seen.values()] == [28, 20]
    in_order, other = corpus.batches(BATCH, 5), corpus.batches(BATCH, 5)
    wanted = {step: in_order[step] for step in range(30)}
    for step in (29, 3, 17, 0, 3):
        for name, array in other[step].items():
            np.testing.assert_array_equal(array, wanted[step][name])
        part = other.rows(step, slice(1, 3))
        np.testing.assert_array_equal(part["input_ids"], wanted[step]["input_ids"][1:3])
    order = [in_order.source(step) for step in range(24)]
    assert order[:12] != order[12:] and order != [corpus.batches(BATCH, 6).source(step) for step in range(24)]
    # Programs are chosen for these; the batches of others may have more tokens than places.
    for steps in (7, 12, 17):
        weighted = dataclasses.replace(corpus, weights=(1.0, 3.0))
        assert weighted.mixture(BATCH) == Mixture((3, 9))
        batches = weighted.batches(BATCH, 5)
        assert np.bincount([batches.source(step) for step in range(36)]).tolist() == [9, 27]
        turns = [batches._turn(step) for step in range(steps)]
        for source, count in enumerate(batches._turns(steps)):
            assert [number for of, number in turns if of == source] == list(range(count))
    teacher = TeacherEmbeddings(np.zeros((3, 2), np.float32), np.zeros((4, 2), np.int32), "key")
    parts = tuple(random_corpus(4, 2, 8, seed, teacher=teacher) for seed in (0, 1))
    assert OneSource(("a", "b"), parts).teacher.key == "key"
    raises("b: 22 examples are fewer than a batch", corpus.mixture, 25)
    made = random_corpus(30, 1, 24, 0, pairing=Pairing(7, fresh=True))  # two groups of eight pairs, of 15 sentences
    raises("a: 16 examples are fewer than a batch", OneSource(("a",), (made,)).mixture, 20)
    raises("data.weights: a would have none of the 12", dataclasses.replace(corpus, weights=(1e-9, 1.0)).mixture, BATCH)
    alike = random_corpus(22, 3, 24, 1)
    compares = dataclasses.replace(alike, texts=np.zeros((22, 3), np.int32))
    for other, count in ((alike, 1), (compares, 2)):
        both = OneSource(("a", "b"), (corpus.parts[0], other))
        assert len({part.shape for part in both.parts}) == count
        assert len(both.batches(BATCH, 5).sizes(12, 1, unpad=False).tokens) == count
    present = np.ones((12, 3), bool)
    present[5:, 2] = present[9:, 1] = False
    joined = random_corpus(12, 3, 24, 4, present=present, sizes=(5, 4, 3), prompts=(Prompts("a", "b"),) * 3)
    joined.attention_mask[5:9, :, 10:] = 0
    scores = np.arange(24, dtype=np.float32).reshape(12, 2)  # of the positives and the hard negatives
    joined = dataclasses.replace(joined, scores=scores)
    triplets, pairs, alone = (joined.of_source(number) for number in range(3))
    assert triplets.input_ids.shape[:2] == (5, 3) and triplets.present is None
    assert pairs.input_ids.shape == (4, 2, 16) and pairs.present is None and len(pairs.prompts) == 1
    assert alone.input_ids.shape[:2] == (3, 1) and alone.num_columns == 1
    np.testing.assert_array_equal(triplets.scores, scores[:5])
    np.testing.assert_array_equal(pairs.scores, scores[5:9, :1])
    of_pairs = dataclasses.replace(joined, scores=scores[:, 0])
    np.testing.assert_array_equal(of_pairs.of_source(1).scores, scores[5:9, 0])
    np.testing.assert_array_equal(pairs.input_ids, joined.input_ids[5:9, :2, :16])
    assert OneSource(("a", "b", "c"), (triplets, pairs, alone)).prompts == joined.prompts
    assert len({part.fingerprint for part in (triplets, pairs, alone)}) == 3
