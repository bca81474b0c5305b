import numpy as np
import pytest
from support import random_model, sentences

from simcse_jax.devices.mesh import compile_by_rows
from simcse_jax.encoding import batching
from simcse_jax.encoding.embedder import Embedder, NotFinite, check_finite, make_embed
from simcse_jax.huggingface.tokenizer import Tokenizer

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def model(tiny_bert):
    graph, params, config = random_model(with_head=False, num_layers=1)
    return graph, params, Tokenizer(tiny_bert, config)


def encode(model, texts, batch_size=4, max_length=64, **options):
    graph, params, tokenizer = model
    options = {"pooler": "avg", "use_head": False} | options
    embedder = Embedder(graph, params, tokenizer=tokenizer, batch_size=batch_size, max_length=max_length, **options)
    return embedder.encode(texts)


class Recorder:
    """A tokenizer that counts what passes through it."""

    typed = False

    def __init__(self, tokenizer):
        self.tokenizer, self.tokenized, self.shapes = tokenizer, [], []

    def tokenize(self, texts, max_length):
        self.tokenized.extend(texts)
        return self.tokenizer.tokenize(texts, max_length)

    def pad(self, rows, length):
        self.shapes.append((len(rows), length))
        return self.tokenizer.pad(rows, length)


def test_duplicates_are_encoded_once_cut_sentences_counted_and_what_is_not_finite_refused(model):
    texts = [*sentences(9), *sentences(5), "", ""]
    recorder = Recorder(model[2])
    found = encode((model[0], model[1], recorder), texts).embeddings
    assert sorted(recorder.tokenized) == sorted(set(texts))
    assert sum(rows for rows, _ in recorder.shapes) < 2 * len(set(texts))
    np.testing.assert_array_equal(found[:5], found[9:14])
    found = encode(model, [])
    assert found.embeddings.shape == (0, 32) and found.embeddings.dtype == np.float32 and found.cut == 0
    long = "the cat sat on the mat " * 10
    assert encode(model, [long, "the cat", long]).cut == 0
    assert encode(model, [long, "the cat", long], max_length=16).cut == 2
    for bad in (np.nan, np.inf, 3e38):
        rows = np.ones((3, 4), np.float32)
        check_finite(rows * 1e15, "abc")
        rows[1, 2] = bad  # 3e38 is finite, but its square is not
        with pytest.raises(NotFinite, match="embeddings are not finite, that of 'b' among them"):
            check_finite(rows, "abc")


@pytest.mark.parametrize("many", [1, 1000])
def test_shapes_are_few_and_every_row_comes_back_in_its_place(model, many, monkeypatch):
    texts = [*sentences(40), *(f"{'the cat ' * n}sat" for n in range(25, 40))]
    alone = np.concatenate([encode(model, [text], batch_size=1).embeddings for text in texts])
    monkeypatch.setattr(batching, "TOKENIZED_AT_ONCE", 7)  # several parts, whose rests wait for each other
    monkeypatch.setattr(batching, "MANY", many)
    recorder = Recorder(model[2])
    found = encode((model[0], model[1], recorder), texts, batch_size=16 if many == 1 else 64)
    if many == 1:
        assert {length for _, length in recorder.shapes} <= {*batching.FINE_LENGTHS, 64}
        assert {rows for rows, _ in recorder.shapes} <= {8, 16}
    else:
        assert set(recorder.shapes) == {(64, 16), (16, 64)}  # without padding
    np.testing.assert_allclose(found.embeddings, alone, atol=1e-5)
    assert found.cut == sum(len(text.split()) + 2 > 64 for text in texts) > 0


def test_devices_other_than_a_cpu_get_no_rows_of_8_or_12_tokens(model, monkeypatch):
    shared = batching.Batching(model[2], 64)
    assert batching.padded_lengths(5, shared)[:3] == [8, 12, 16]
    monkeypatch.setattr(batching.Batching, "on_cpu", False)
    assert batching.padded_lengths(5, shared) == [16, 24, 32, 48, 64]
    assert batching.padded_lengths(2**15 - 1, shared) == [16, 24, 32, 48, 64]  # each length takes seconds to compile
    assert batching.padded_lengths(2**15, shared)[:3] == [8, 10, 12]


def test_shapes_compile_once_and_longer_sentences_share_smaller_batches(model, monkeypatch):
    monkeypatch.setattr(batching, "CPU_LENGTHS", (16, 32))
    embed = make_embed(model[0], "max", False, None, (), 0, False, compile_by_rows, most_tokens=None)
    before = embed._cache_size()
    for texts in (sentences(20), sentences(30, seed=1), sentences(20)):
        encode(model, texts, pooler="max", batch_size=10)
    assert embed._cache_size() - before == 1
    monkeypatch.undo()
    long = ["the cat sat " * 3] * 2
    for texts, expected in ((["sat"], (1, 8)), (["sat"] * 3, (1, 8)), (long, (1, 12)), (["a", "b"], (8, 8))):
        recorder = Recorder(model[2])
        found = encode((model[0], model[1], recorder), texts, batch_size=16, pooler="cls")
        assert len(found.embeddings) == len(texts)
        assert recorder.shapes == [expected]
    monkeypatch.setattr(batching, "CPU_TOKENS", 16 * 8)
    monkeypatch.setattr(batching, "FINE_LENGTHS", (16, 32))
    monkeypatch.setattr(batching, "MANY", 1)
    recorder = Recorder(model[2])
    texts = [*sentences(40), *(f"{'the cat ' * 10}{word}" for word in sentences(20))]
    encode((model[0], model[1], recorder), texts, batch_size=32, pooler="cls")
    assert {shape for shape in recorder.shapes if shape[0] > 1} == {(8, 16), (4, 32)}
