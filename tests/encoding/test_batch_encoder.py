import numpy as np
import pytest
from support import random_model, sentences

from simcse_jax.encoding import batching
from simcse_jax.encoding.batch_encoder import BatchEncoder
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.huggingface.tokenizer import Tokenizer

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def make(tiny_bert):
    graph, params, config = random_model(with_head=False)
    tokenizer = Tokenizer(tiny_bert, config)

    def embedder(**options):
        options = {"pooler": "avg", "use_head": False, "max_length": 32, "batch_size": 16} | options
        return Embedder(graph, params, tokenizer=tokenizer, **options)

    return embedder


@pytest.mark.parametrize("options", [{}, {"normalize": True, "prompt": "the man ", "include_prompt": False}])
def test_a_batch_of_any_lengths_is_encoded_as_each_sentence_alone(make, options):
    embedder = make(**options)
    encoder = BatchEncoder(embedder)
    texts = [*sentences(6), "a " * 17, "the cat " * 30]
    found = encoder.tokenize(texts)
    assert [each.cut for each in found] == [False] * 7 + [True]
    assert (encoder.skipped > 0) == bool(options)
    length = max(encoder.padded(sentence) for sentence in found)
    assert length == 32 and encoder.padded(found[0]) == 16 and encoder.padded(found[6]) in (24, 32)
    embeddings = encoder.encode(found, length, encoder.size(length, len(found)))
    assert embeddings.shape == (8, encoder.dimension) and embeddings.dtype == np.float32
    alone = np.concatenate([embedder([text]) for text in texts])
    np.testing.assert_allclose(embeddings, alone, atol=1e-5)


def test_its_shapes_are_those_of_encode(make, monkeypatch):
    embedder = make(max_length=64, batch_size=64)
    used = set()
    place = batching.Batching.place
    monkeypatch.setattr(
        batching.Batching, "place", lambda self, batch: used.add((batch.length, batch.size)) or place(self, batch)
    )
    texts = [f"{'the cat ' * n}sat" for n in range(1, 31)] * 2
    embedder([f"{text} on {number}" for number, text in enumerate(texts)] + ["a"])
    assert used <= set(BatchEncoder(embedder).shapes())
    monkeypatch.setattr(batching, "MANY", 1)
    used.clear()
    embedder(texts)
    fine = BatchEncoder(embedder, fine=True)
    assert used <= set(fine.shapes()) and len(fine.shapes()) > len(BatchEncoder(embedder).shapes())


def test_every_shape_can_be_compiled_before(make):
    encoder = BatchEncoder(make())
    assert encoder.shapes() == [(16, 8), (16, 16), (24, 8), (24, 16), (32, 8), (32, 16)]
    encoder.warm(*encoder.shapes()[0])


@pytest.mark.parametrize(("on_cpu", "expected"), [(True, [8, 8, 16, 16]), (False, [8, 8, 16, 16])])
def test_few_sentences_take_a_small_batch(make, monkeypatch, on_cpu, expected):
    monkeypatch.setattr(batching.Batching, "on_cpu", property(lambda self: on_cpu))
    encoder = BatchEncoder(make())
    assert [encoder.size(16, waiting) for waiting in (1, 7, 9, 100)] == expected


def test_a_cpu_prefers_several_small_batches_to_a_large_one_with_empty_rows(make, monkeypatch):
    encoder = BatchEncoder(make(batch_size=64))
    sizes = {}
    for on_cpu in (True, False):
        monkeypatch.setattr(batching.Batching, "on_cpu", property(lambda self, on_cpu=on_cpu: on_cpu))
        sizes[on_cpu] = [encoder.size(16, waiting) for waiting in (8, 9, 31, 32)]
        assert encoder.workers >= 1
    assert sizes == {True: [8, 8, 8, 64], False: [8, 64, 64, 64]}
