import dataclasses

import numpy as np
import pytest
from support import CONFIGS, sentences

from simcse_jax.data import batches as module
from simcse_jax.data.batches import Batches, Corpus, tokenize
from simcse_jax.data.examples import Examples
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.pairing import Pairing
from simcse_jax.host.storage import sha256
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.config import EncoderConfig

EXAMPLES, BATCH = 22, 4
STEPS = EXAMPLES // BATCH


@pytest.fixture(scope="module")
def tokenizer(tiny_bert):
    return Tokenizer(tiny_bert, EncoderConfig.from_hugging_face(CONFIGS["bert"], "test"))


@pytest.fixture(scope="module")
def corpus(tokenizer):
    return tokenize(Examples((sentences(EXAMPLES, 1), sentences(EXAMPLES, 2)), 0), tokenizer, 16)


def of_words(*counts: int, tokenizer, max_length: int):
    """A corpus of one column, whose sentences have this many words."""
    return tokenize(Examples((["cat " * count for count in counts],), 0), tokenizer, max_length)


def same(left, right) -> bool:
    assert left.keys() == right.keys()
    return all(np.array_equal(left[name], right[name]) for name in left)


def rows(corpus, batches, steps) -> list[int]:
    """The examples in the batches of these steps."""
    position = {example.tobytes(): row for row, example in enumerate(corpus.input_ids)}
    assert len(position) == EXAMPLES
    return [position[example.tobytes()] for step in steps for example in batches[step]["input_ids"]]


def epoch(number: int) -> range:
    return range(number * STEPS, (number + 1) * STEPS)


@pytest.mark.parametrize(("examples", "batch", "steps"), [(22, 4, 5), (24, 4, 6), (3, 4, 0), (4, 4, 1)])
def test_the_last_partial_batch_of_an_epoch_is_dropped(examples, batch, steps):
    ids = np.zeros((examples, 1, 8), np.int32)
    assert Corpus(ids, ids.astype(np.int8)).steps_per_epoch(batch) == steps


@pytest.mark.parametrize("number", [0, 1, 7])
def test_an_epoch_sees_every_example_at_most_once(corpus, number):
    seen = rows(corpus, Batches(corpus, BATCH, seed=3), epoch(number))
    assert len(seen) == len(set(seen)) == STEPS * BATCH


def test_a_batch_depends_on_seed_and_step_alone(corpus):
    in_order = Batches(corpus, BATCH, seed=3)
    expected = [in_order[step] for step in range(3 * STEPS)]
    used = Batches(corpus, BATCH, seed=3)
    for step in np.random.default_rng(0).permutation(3 * STEPS):
        assert same(used[int(step)], expected[step])
        assert same(Batches(corpus, BATCH, seed=3)[int(step)], expected[step])


def test_every_epoch_and_every_seed_has_its_own_order(corpus):
    orders = [
        tuple(rows(corpus, Batches(corpus, BATCH, seed), epoch(number))) for seed in (0, 1, 42) for number in range(3)
    ]
    assert len(set(orders)) == len(orders)


def test_the_columns_of_an_example_stay_together(corpus):
    batch = Batches(corpus, BATCH, seed=0)[0]
    for ids, mask, row in zip(
        batch["input_ids"], batch["attention_mask"], rows(corpus, Batches(corpus, BATCH, 0), [0]), strict=True
    ):
        np.testing.assert_array_equal(ids, corpus.input_ids[row])
        np.testing.assert_array_equal(mask, corpus.attention_mask[row])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (BATCH, 2, 16)
    np.testing.assert_array_equal(batch["index"], np.arange(BATCH))
    assert {value.dtype for value in batch.values()} == {np.dtype(np.int32)}


def test_labels_go_with_their_examples(corpus):
    assert "label" not in Batches(corpus, BATCH, seed=0)[0]
    labelled = dataclasses.replace(corpus, labels=np.arange(EXAMPLES, dtype=np.int32))
    plain, batches = Batches(corpus, BATCH, seed=0), Batches(labelled, BATCH, seed=0)
    for step in (0, 3, STEPS + 1):
        batch = batches[step]
        np.testing.assert_array_equal(batch["label"], rows(corpus, plain, [step]))
        assert batch["label"].dtype == np.int32
        np.testing.assert_array_equal(batches.rows(step, slice(1, 3))["label"], batch["label"][1:3])
        del batch["label"]
        assert same(batch, plain[step])


def test_the_examples_labels_become_the_corpus_s(tokenizer):
    labels = np.array([2, 0], np.int32)
    corpus = tokenize(Examples((["a cat", "the dog"], ["a bird", "red"]), 0, labels), tokenizer, 16)
    np.testing.assert_array_equal(corpus.labels, labels)


@pytest.mark.parametrize(
    ("words", "max_length", "length"),
    [(1, 32, 8), (6, 32, 8), (7, 32, 16), (14, 32, 16), (15, 32, 24), (40, 32, 32), (40, 30, 30), (18, 20, 20)],
)
def test_lengths_are_rounded_up_to_8_and_cut_at_max_length(tokenizer, words, max_length, length):
    corpus = of_words(1, words, tokenizer=tokenizer, max_length=max_length)
    assert corpus.input_ids.shape == corpus.attention_mask.shape == (2, 1, length)
    assert corpus.attention_mask[1].sum() == min(words + 2, max_length)
    assert corpus.input_ids[1, 0, min(words + 2, max_length) - 1] == 3  # [SEP] survives the cut


def test_the_mask_counts_the_tokens_and_the_rest_is_padding(tokenizer):
    corpus = of_words(3, 1, 9, tokenizer=tokenizer, max_length=32)
    np.testing.assert_array_equal(corpus.attention_mask.sum(-1)[:, 0], [5, 3, 11])
    np.testing.assert_array_equal(corpus.attention_mask != 0, corpus.input_ids != 0)
    np.testing.assert_array_equal(corpus.input_ids[1, 0, :4], [2, 5 + 1, 3, 0])


def test_the_longest_column_decides_the_length_of_all(tokenizer):
    corpus = tokenize(Examples((["cat"], ["cat " * 20]), 0), tokenizer, 32)
    assert corpus.input_ids.shape == (1, 2, 24)


def test_the_fingerprint_changes_with_the_text_alone(tokenizer):
    def fingerprint(*columns: list[str], blank: int = 0) -> str:
        return sha256(tokenize(Examples(columns, blank), tokenizer, 16).input_ids)

    original = fingerprint(["a cat", "the dog"], ["a bird", "red"])
    assert original == fingerprint(["a cat", "the dog"], ["a bird", "red"], blank=5)
    changed = [
        fingerprint(["a cat", "the dog"], ["a bird", "old"]),
        fingerprint(["the dog", "a cat"], ["red", "a bird"]),
        fingerprint(["a bird", "red"], ["a cat", "the dog"]),
        fingerprint(["a cat", "the dog"]),
        fingerprint(["a cat", "a bird", "the dog", "red"]),
        fingerprint(["a cat", "the dog", "a cat"], ["a bird", "red", "a bird"]),
    ]
    assert len({original, *changed}) == 1 + len(changed)


@pytest.mark.parametrize(("devices", "chunk_size"), [(1, 0), (2, 0), (2, 3), (1, 64)])
@pytest.mark.parametrize("steps", [13, 2000])
def test_a_step_s_size_has_places_for_all_that_is_encoded_together(devices, chunk_size, steps):
    corpus, batch = of_lengths(np.random.default_rng(0).integers(2, 24, (90, 2))), 16
    programs = Batches(corpus, batch, seed=5).sizes(steps, devices, chunk_size)
    sizes, which = programs.tokens, [programs.of(step) for step in range(steps)]
    together = min(chunk_size or batch, batch // devices)
    batches, ends = Batches(corpus, batch, seed=5), []
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


def test_a_batch_larger_than_any_expected_decides_the_size():
    lengths = np.full((1000, 1), 4)
    order = np.random.Generator(np.random.Philox(key=[0, 0])).permutation(1000)
    lengths[order[:8]] = 32  # a whole batch of them
    assert Batches(of_lengths(lengths), 8, seed=0).sizes(125, 1)[0] == ((),)  # as many tokens as places
    lengths[order[5:8]] = 4
    assert Batches(of_lengths(lengths), 8, seed=0).sizes(125, 1)[0] == ((5 * 32 + 3 * 4,),)


def test_a_little_padding_stays():
    assert Batches(of_lengths(np.full((20, 1), 31)), 4, seed=0).sizes(5, 1)[0] == ((),)
    assert Batches(of_lengths(np.full((20, 1), 16)), 4, seed=0).sizes(5, 1)[0] == ((4 * 16,),)
    assert Batches(of_lengths(np.full((20, 1), 16)), 4, seed=0).sizes(5000, 1)[0] == ((4 * 16,),)


def test_sources_that_are_read_more_often_count_as_often():
    """Short rows, and long ones that have half of the turns: no batch would fit what fits rows that are read once."""
    lengths = np.concatenate([np.full(90, 4), np.full(10, 24)])[:, None]
    mixed = dataclasses.replace(of_lengths(lengths), sizes=(90, 10), mixture=Mixture((50, 50)))
    repeated = of_lengths(np.repeat(lengths, [5] * 90 + [45] * 10, axis=0))  # the same rows, as often as they are read
    weighted, expected = (Batches(each, 16, seed=0).sizes(1000, 1) for each in (mixed, repeated))
    assert weighted.tokens[0] == expected.tokens[0] and len(weighted.tokens) == 2
    assert 0.8 < np.mean([weighted.of(step) == 0 for step in range(1000)]) < 1


def of_lengths(lengths: np.ndarray) -> Corpus:
    """(N, C) lengths; a padded sentence has 32 places."""
    mask = (np.arange(32) < lengths[:, :, None]).astype(np.int8)
    return Corpus(mask.astype(np.int32), mask)


def test_the_batches_of_a_very_long_run_are_not_all_counted_before_it(corpus, monkeypatch):
    batches = Batches(corpus, BATCH, 0)
    whole = batches.sizes(4, 1)
    monkeypatch.setattr(module, "LOOKED_AT", 4)
    long = batches.sizes(2**31 - 1, 1)
    assert long.tokens[-1] == () and long.tokens[1] == whole.tokens[0]  # padding stays where nothing was counted
    assert [long.of(step) == whole.of(step) for step in range(4)] == [True] * 4
    assert {long.of(step) for step in (4, 5, 2**31 - 2)} == {len(long.tokens) - 1}


def test_rows_say_which_columns_their_source_has(tokenizer):
    present = np.arange(8).reshape(4, 2) % 3 > 0
    examples = Examples((["a cat"] * 4, ["", "a dog", "home", ""]), 0, present=present)
    batches = Batches(tokenize(examples, tokenizer, 16), 2, seed=1)
    first = {row.tobytes() for row in batches[0]["present"]} | {row.tobytes() for row in batches[1]["present"]}
    assert first == {row.tobytes() for row in present}
    assert batches.rows(0, slice(1, 2))["present"].shape == (1, 2)


def test_rows_of_a_group_stay_together_in_every_order():
    ids = np.arange(24, dtype=np.int32).reshape(12, 1, 2)
    batches = Batches(Corpus(ids, np.ones_like(ids, dtype=np.int8), group=3), 6, seed=1)
    for step in range(4):
        rows = batches[step]["input_ids"][:, 0, 0] // 2
        assert (rows.reshape(2, 3) == rows[::3, None] + np.arange(3)).all() and (rows[::3] % 3 == 0).all()
    orders = [np.concatenate([batches[2 * epoch + step]["input_ids"] for step in (0, 1)]).ravel() for epoch in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(24)) and (orders[0] != orders[1]).any()


def test_equal_texts_go_with_their_examples(corpus):
    texts = np.arange(corpus.input_ids.shape[0] * corpus.input_ids.shape[1], dtype=np.int32)
    told = dataclasses.replace(corpus, texts=texts.reshape(corpus.input_ids.shape[:2]) // 3)
    assert "text" not in corpus.batches(4, 0)[0] and told.fingerprint != corpus.fingerprint
    for step in range(3):
        batch = told.batches(4, 0)[step]
        rows = [np.flatnonzero((corpus.input_ids == ids).all(axis=(1, 2)))[0] for ids in batch["input_ids"]]
        np.testing.assert_array_equal(batch["text"], told.texts[rows])


def test_a_batch_s_tokens_are_those_of_its_mask(corpus):
    for batches in (
        Batches(corpus, BATCH, 3),
        Batches(dataclasses.replace(corpus, pairing=Pairing(1, fresh=False)), BATCH, 3),
    ):
        for step in (0, STEPS, 1):
            assert batches.tokens(step) == batches[step]["attention_mask"].sum() > 0
        assert not batches.is_reading(0)
