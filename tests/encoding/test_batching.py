import itertools
import threading

import jax
import pytest
from support import random_model, sentences

from simcse_jax.encoding import batching
from simcse_jax.encoding.batching import Batching, Shape, cheapest_batches, compute, make_batches
from simcse_jax.huggingface.tokenizer import Tokenizer

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def tokenizer(tiny_bert):
    return Tokenizer(tiny_bert, random_model()[2])


@pytest.fixture
def texts():
    return [*sentences(40), *(f"{'the cat ' * n}sat" for n in range(25, 40))]


def test_few_sentences_fill_few_shapes_and_are_padded_if_long_or_where_that_takes_less(tokenizer, texts, monkeypatch):
    own = Batching(tokenizer, 48, 64)
    made = cheapest_batches(texts, own)
    assert sorted(sentence.row for batch in made for sentence in batch.sentences) == list(range(len(texts)))
    assert {batch.shape for batch in made} == {Shape(21, 48, 512), Shape(64, 16, 512)}
    for batch in made:
        sizes = [len(sentence.ids) for sentence in batch.sentences]
        assert max(sizes) <= batch.shape.length and sum(sizes) <= 512
        assert own.place(batch)[1].sum(1).tolist() == sizes + [0] * (batch.shape.rows - len(sizes))
    texts = ["the cat"] * 90
    padded = sum(batch.shape.tokens for batch in make_batches(texts, Batching(tokenizer, 64, 32)))
    made = cheapest_batches(texts, Batching(tokenizer, 64, 32))
    assert sum(batch.shape.tokens for batch in made) == padded and {batch.shape.length for batch in made} == {8}
    assert list(make_batches([], Batching(tokenizer, 48))) == []
    monkeypatch.setattr(batching, "is_long", lambda length: length > 32)
    texts = [f"{'the cat ' * n}sat" for n in [20, *range(2, 14)] * 8]
    made = cheapest_batches(texts, Batching(tokenizer, 64, 64))
    assert {(batch.shape.length, batch.shape.is_padded) for batch in made} == {(64, True), (32, False)}


def test_every_sentence_is_in_one_batch_of_its_length_and_outputs_have_their_rows(tokenizer, texts, monkeypatch):
    batch = next(make_batches(["the cat sat", "a dog"], Batching(tokenizer, 64, 8)))
    ids, mask = Batching(tokenizer, 64, 8).place(batch)
    assert ids.shape == mask.shape == (batch.shape.rows, batch.shape.length) and len(batch.sentences) == 2 < len(ids)
    assert (ids[2:] == ids[0]).all() and (mask[2:] == mask[0]).all()
    assert [Batching(tokenizer, 2048, 32).size(length) for length in (16, 64, 128, 2048)] == [32, 16, 8, 1]
    count = jax.jit(lambda params, ids, mask: mask.sum(axis=1))
    outputs = list(compute(count, {}, texts, Batching(tokenizer, 48, 4), in_flight=1))
    counted = {row: value for output in outputs for row, value in zip(output.rows.tolist(), output.values, strict=True)}
    assert counted == {row: min(len(text.split()) + 2, 48) for row, text in enumerate(texts)}
    cut = {row for output in outputs for row, flag in zip(output.rows.tolist(), output.cut, strict=True) if flag}
    assert cut == {row for row, text in enumerate(texts) if len(text.split()) + 2 > 48}
    monkeypatch.setattr(batching, "TOKENIZED_AT_ONCE", 7)  # several parts, whose rests wait for each other
    made = list(make_batches(texts, Batching(tokenizer, 48, 16)))
    found = [sentence for batch in made for sentence in batch.sentences]
    assert sorted(sentence.row for sentence in found) == list(range(len(texts)))
    for sentence in found:
        tokens = len(texts[sentence.row].split()) + 2
        assert (len(sentence.ids), sentence.cut) == (min(tokens, 48), max(tokens - 48, 0))
    assert all(len(sentence.ids) <= batch.shape.length for batch in made for sentence in batch.sentences)
    assert all(len(batch.sentences) <= batch.shape.rows for batch in made)
    assert sum(sentence.cut > 0 for sentence in found) == sum(len(text.split()) + 2 > 48 for text in texts) > 0


def test_after_ctrl_c_nothing_begins_and_nobody_waits(tokenizer, texts, monkeypatch):
    monkeypatch.setattr(batching, "MOST_THREADS", 1)
    numbers, running, end = itertools.count(), threading.Event(), threading.Event()

    def function(params, ids, mask):
        if next(numbers):  # the second batch does not end before the test says so
            running.set()
            end.wait(5)
        return jax.numpy.asarray(mask[:, 0])

    before = set(threading.enumerate())
    outputs = compute(function, {}, texts, Batching(tokenizer, 48, 4), in_flight=4)
    next(outputs)
    assert running.wait(60)
    with pytest.raises(KeyboardInterrupt):
        outputs.throw(KeyboardInterrupt)
    assert not end.is_set()
    end.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert next(numbers) == 2  # of the five batches that were handed over
