"""Folders that sentence-transformers wrote: the same embeddings within 1e-5, or a refusal that says what is unknown."""

import numpy as np
import pytest
from support.later import later

from simcse_jax import SimCSE
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.write import write_model as write_model_folder

pytestmark, torch = pytest.mark.slow, later("torch")
SENTENCES = ["the cat", "A man is here.", "", "the cat sits on a man " * 20, "man"]
PROMPTS = {"query": "the man ", "q": "a cat sits ", "passage": "on "}


@pytest.fixture(scope="module")
def there():
    """The library, and its functions' names in short."""
    return pytest.importorskip("sentence_transformers")


def pooling(*modes, **options):
    return lambda models: [models.Pooling(32, modes, **options)]


def then(*made):
    """A mean, and then these modules."""
    return lambda models: [models.Pooling(32), *(make(models) for make in made)]


def dense(before, after, activation="Tanh", **options):
    return lambda models: models.Dense(before, after, activation_function=getattr(torch.nn, activation)(), **options)


def layers(weights, start=0):
    def make(models):
        return models.WeightedLayerPooling(32, 2, start, torch.nn.Parameter(torch.tensor(weights)))

    return lambda models: [make(models), models.Pooling(32)]


def normalize(models):
    return models.Normalize()


def layer_norm(models):
    module = models.LayerNorm(32)
    torch.nn.init.normal_(module.norm.weight)
    torch.nn.init.normal_(module.norm.bias)
    return module


FOLDERS = {
    "mean": pooling("mean"),
    "all modes": pooling("lasttoken", "weightedmean", "mean_sqrt_len_tokens", "mean", "max", "cls"),
    "without the prompt": pooling("mean", include_prompt=False),
    "cls without the prompt": pooling("cls", "weightedmean", "lasttoken", "max", include_prompt=False),
    "head": then(dense(32, 32)),
    "linear head": then(dense(32, 32, "Identity")),
    "narrow and wide": then(dense(32, 7, "GELU"), dense(7, 50, "SiLU", bias=False), dense(50, 5, "ReLU")),
    "residual": then(dense(32, 32, "Sigmoid", use_residual=True), dense(32, 6, "SiLU", use_residual=True)),
    "unit length": then(normalize),
    "unit length between": then(normalize, dense(32, 9, "Tanh"), normalize),
    "everything": then(dense(32, 32), lambda models: models.Dropout(), layer_norm, normalize),
    "two layers": layers([0.0, 2.0, 2.0]),
    "last layer": layers([3.0], start=2),
}


@pytest.fixture(scope="module")
def write(there, tiny_bert, tmp_path_factory):
    """Saves a model of these modules, and returns the library's, read again, and the folder."""
    from sentence_transformers import models

    def save(make, **options):
        transformer = models.Transformer(str(tiny_bert))
        folder = tmp_path_factory.mktemp("saved")
        transformer.model.config.output_hidden_states = make.__qualname__.startswith("layers")
        there.SentenceTransformer(modules=[transformer, *make(models)], **options).save(str(folder))
        return there.SentenceTransformer(str(folder)), folder

    return save


def same(ours, theirs):
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", FOLDERS)
def test_embeddings_are_the_same(write, name):
    theirs, folder = write(FOLDERS[name], prompts=PROMPTS)
    ours = SimCSE(folder)
    same(ours.encode(SENTENCES), theirs.encode(SENTENCES))
    same(ours.encode(SENTENCES, prompt_name="q"), theirs.encode(SENTENCES, prompt_name="q"))
    assert ours.dimension == theirs.get_embedding_dimension()


SIMILARITIES = {"mean": "cosine", "without the prompt": "dot", "unit length": "euclidean", "everything": "manhattan"}


@pytest.mark.parametrize(("name", "similarity"), SIMILARITIES.items())
def test_prompts_truncation_and_similarities_are_the_same(write, name, similarity):
    options = {"prompts": PROMPTS, "default_prompt_name": "q", "truncate_dim": 6, "similarity_fn_name": similarity}
    theirs, folder = write(FOLDERS[name], **options)
    ours = SimCSE(folder)
    assert (ours.prompts, ours.default_prompt_name) == (theirs.prompts, "q") and ours.dimension == 6
    for method in ("encode", "encode_query", "encode_document"):
        same(getattr(ours, method)(SENTENCES), getattr(theirs, method)(SENTENCES))
    given = {"prompt": "the ", "truncate_dim": 9}
    same(ours.encode(SENTENCES, **given), theirs.encode(SENTENCES, **given))
    same(ours.encode(SENTENCES, normalize_to_unit=True), theirs.encode(SENTENCES, normalize_embeddings=True))
    expected = theirs.similarity(theirs.encode(SENTENCES), theirs.encode(SENTENCES)).numpy()
    np.testing.assert_allclose(ours.similarity(SENTENCES, SENTENCES), expected, atol=1e-4)
    expected = theirs.similarity(theirs.encode_query(SENTENCES), theirs.encode_document(SENTENCES)).numpy()
    ours.build_index(SENTENCES)
    for found, scores in zip(ours.search(SENTENCES, top_k=5), expected, strict=True):
        np.testing.assert_allclose([result.score for result in found], sorted(scores)[::-1], atol=1e-4)
        np.testing.assert_allclose([scores[result.row] for result in found], sorted(scores)[::-1], atol=1e-4)


def relu(models):
    """Over the tokens: the identity, and a ReLU."""
    names = {"module_input_name": "token_embeddings", "bias": False, "init_weight": torch.eye(24)}
    return models.Dense(24, 24, activation_function=torch.nn.ReLU(), **names)


@pytest.mark.parametrize("after", [[], [relu]], ids=["plain", "relu"])
def test_convolutions_are_the_same_without_padding_and_are_written_as_they_were_read(write, there, after, tmp_path):
    """With padding they are not: the library convolves what the encoder has there, so a sentence depends on others."""
    theirs, folder = write(lambda models: [models.CNN(32, 8), *(make(models) for make in after), models.Pooling(24)])
    expected, ours = theirs.encode(SENTENCES, batch_size=1), SimCSE(folder)
    same(ours.encode(SENTENCES), expected)
    assert ours.dimension == theirs.get_embedding_dimension()
    write_model_folder(load(str(folder)), tmp_path)
    same(there.SentenceTransformer(str(tmp_path)).encode(SENTENCES, batch_size=1), expected)
    same(SimCSE(tmp_path).encode(SENTENCES), expected)
