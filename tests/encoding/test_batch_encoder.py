import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model, sentences, write_tokenizer

from simcse_jax.encoding import batching
from simcse_jax.encoding.batch_encoder import BatchEncoder
from simcse_jax.encoding.batching import Shape
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.huggingface.tokenizer import Tokenizer

pytestmark = pytest.mark.exact
PROMPT = {"normalize": True, "prompt": "the man ", "include_prompt": False}
TEXTS = [*sentences(6), "a " * 17, "the cat " * 30]


@pytest.fixture(scope="module")
def make(shared):
    def embedder(model_type="bert", dtype=np.float32, num_layers=1, **options):
        write = lambda folder: folder.mkdir() or write_tokenizer(folder, model_type)  # noqa: E731
        folder = shared(f"tokenizer-of-{model_type}", write)
        graph, params, config = random_model(model_type, with_head=False, dtype=dtype, num_layers=num_layers)
        options = {"pooler": "avg", "use_head": False, "max_length": 40, "batch_size": 16} | options
        return Embedder(graph, params, tokenizer=Tokenizer(folder, config), **options)

    return embedder


def on_accelerator(monkeypatch):
    monkeypatch.setattr(batching.Batching, "on_cpu", property(lambda self: False))


@pytest.mark.parametrize(("options", "on_cpu"), [({}, False), (PROMPT, True)])
def test_a_batch_of_any_lengths_is_encoded_as_each_sentence_alone(make, monkeypatch, options, on_cpu):
    embedder = make(**options)
    alone = np.concatenate([embedder([text]) for text in TEXTS])
    if not on_cpu:
        on_accelerator(monkeypatch)
    encoder = BatchEncoder(embedder)
    found = encoder.tokenize(TEXTS)
    assert [each.cut > 0 for each in found] == [False] * 7 + [True]
    assert (encoder.skipped > 0) == bool(options)
    length = max(encoder.row_length(sentence) for sentence in found)
    assert length == 40 and encoder.row_length(found[0]) == 16 and encoder.row_length(found[6]) in (24, 32)
    shape, places = encoder.choose(length, [len(each.ids) for each in found])
    assert places == [*range(8)] and shape.is_padded != on_cpu
    longest, _ = encoder.choose(length, [40])  # no room for what its empty rows could hold
    np.testing.assert_allclose(encoder.encode(found[7:], longest), alone[7:], atol=1e-5)
    embeddings = encoder.encode(found, shape)
    assert embeddings.shape == (8, encoder.dimension) and embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, alone, atol=1e-5)


SLOW = (("modernbert", "avg_weighted"), ("mpnet", "avg+last"), ("nomic_bert", "cls"))
SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in SLOW]


@pytest.mark.parametrize(("model_type", "pooler"), [("roberta", "max"), *SLOW])
def test_every_encoder_and_pooler_leaves_padding_out(make, model_type, pooler):
    embedder = make(model_type, pooler=pooler, num_layers=1 + (model_type == "modernbert"))  # windows in one of two
    encoder, alone = BatchEncoder(embedder), np.concatenate([embedder([text]) for text in TEXTS[4:]])
    found = encoder.tokenize(TEXTS[4:])  # two rows stay empty
    shape, _ = encoder.choose(40, [len(each.ids) for each in found])
    assert not shape.is_padded and len(found) < shape.rows
    np.testing.assert_allclose(encoder.encode(found, shape), alone, atol=1e-5)


@pytest.mark.slow
def test_a_batch_in_bfloat16_is_as_near_to_float32_as_encode_is(make):
    encoder = BatchEncoder(half := make(dtype=jnp.bfloat16))
    right = make()(TEXTS)
    found = encoder.tokenize(TEXTS)
    shape, _ = encoder.choose(40, [len(each.ids) for each in found])
    theirs, ours = (np.abs(embeddings - right).max() for embeddings in (half(TEXTS), encoder.encode(found, shape)))
    assert 0 < ours < 1.5 * theirs


def test_its_shapes_on_an_accelerator_are_those_of_encode_with_room_for_all(make, monkeypatch):
    on_accelerator(monkeypatch)
    embedder = make(max_length=64, batch_size=64)
    used = set()
    place = batching.Batching.place
    monkeypatch.setattr(batching.Batching, "place", lambda self, batch: used.add(batch.shape) or place(self, batch))
    texts = [f"{'the cat ' * n}sat" for n in range(1, 31)] * 2
    embedder([f"{text} on {number}" for number, text in enumerate(texts)] + ["a"])
    assert used <= {*BatchEncoder(embedder).shapes()}
    on_accelerator(monkeypatch)
    encoder = BatchEncoder(make(max_length=64, batch_size=64))
    found = [encoder.choose(24, [20] * count) for count in (1, 8, 9, 100)]
    assert [(shape.rows, len(taken)) for shape, taken in found] == [(8, 1), (8, 8), (64, 9), (64, 64)]
    assert encoder.workers == 2


def test_every_shape_can_be_compiled_before_and_has_room_for_every_sentence_of_its_rows(make):
    encoder = BatchEncoder(make(prompt="the cat " * 17, batch_size=8))
    assert encoder.shapes() == [
        *(Shape(2, 16, 16), Shape(2, 24, 24), Shape(2, 32, 32), Shape(2, 40, 48), Shape(3, 40, 64)),
        *(Shape(8, 16, 128), Shape(8, 32, 128), Shape(8, 32, 256)),
        *(Shape(6, 40, 128), Shape(8, 40, 256), Shape(8, 40, 320)),
    ]
    assert encoder.most == 8
    encoder.warm(encoder.shapes()[0])
    for max_length, batch_size in ((16, 1), (100, 64), (8192, 64)):
        encoder = BatchEncoder(make(max_length=max_length, batch_size=batch_size))
        shapes = encoder.shapes()
        assert len(set(shapes)) == len(shapes) <= 24
        assert all(shape.length <= shape.tokens <= shape.rows * shape.length for shape in shapes)
        assert all(encoder.choose(encoder._lengths[-1], [size])[0].tokens >= size for size in range(1, max_length + 1))
        assert all(1 <= shape.rows <= batch_size and shape.length <= max_length for shape in shapes)
        assert [shape for shape in shapes if shape.length > 512] == [Shape(1, 8192, 8192)] * (max_length == 8192)


def test_a_cpu_prefers_a_small_batch_to_one_that_is_not_full(make):
    encoder = BatchEncoder(make(max_length=64, batch_size=64))
    for sizes, tokens, places in (
        ([10], 16, [0]),
        ([20], 24, [0]),
        ([20, 20], 48, [0, 1]),
        ([40, 40], 128, [0, 1]),
        ([40, 30, 20], 64, [0, 2]),
        ([40, 40, 20], 128, [0, 1, 2]),
        ([40] * 9 + [25] * 60, 512, [*range(15)]),
        ([40] * 9, 256, [*range(6)]),  # 360 of 512 are too few
        ([64] * 3 + [3] * 90, 128, [0, 1]),  # in 256, eight rows would hold five short ones more
    ):
        shape, taken = encoder.choose(64, sizes)
        assert (shape.tokens, taken) == (tokens, places)
