"""Folders that sentence-transformers wrote: the same embeddings within 1e-5, or a refusal that says what is unknown."""

import json

import numpy as np
import pytest
from support import write_model
from support.models import edit_json

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.write import write_model as write_model_folder

pytestmark = pytest.mark.slow
SENTENCES = ["the cat", "A man is here.", "", "the cat sits on a man " * 20, "man"]
PROMPTS = {"query": "the man ", "q": "a cat sits ", "passage": "on "}


@pytest.fixture(scope="module")
def there():
    """The library, and its functions' names in short."""
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def base(tmp_path_factory, there):
    return str(write_model(tmp_path_factory.mktemp("base") / "bert", "bert"))


def pooling(*modes, **options):
    return lambda models: [models.Pooling(32, modes, **options)]


def then(*made):
    """A mean, and then these modules."""
    return lambda models: [models.Pooling(32), *(make(models) for make in made)]


def dense(before, after, activation="Tanh", **options):
    def make(models):
        from torch import nn

        return models.Dense(before, after, activation_function=getattr(nn, activation)(), **options)

    return make


def layers(weights, start=0):
    def make(models):
        from torch import nn, tensor

        return models.WeightedLayerPooling(32, 2, start, nn.Parameter(tensor(weights)))

    return lambda models: [make(models), models.Pooling(32)]


def normalize(models):
    return models.Normalize()


def layer_norm(models):
    import torch

    module = models.LayerNorm(32)
    torch.nn.init.normal_(module.norm.weight)
    torch.nn.init.normal_(module.norm.bias)
    return module


FOLDERS = {
    "cls": pooling("cls"),
    "max": pooling("max"),
    "mean": pooling("mean"),
    "sqrt": pooling("mean_sqrt_len_tokens"),
    "weighted": pooling("weightedmean"),
    "last": pooling("lasttoken"),
    "two modes": pooling("mean", "cls"),
    "all modes": pooling("lasttoken", "weightedmean", "mean_sqrt_len_tokens", "mean", "max", "cls"),
    "without the prompt": pooling("mean", include_prompt=False),
    "cls without the prompt": pooling("cls", "weightedmean", "lasttoken", "max", include_prompt=False),
    "head": then(dense(32, 32)),
    "linear head": then(dense(32, 32, "Identity")),
    "narrow": then(dense(32, 7, "GELU")),
    "wide, without bias": then(dense(32, 50, "SiLU", bias=False)),
    "two dense": then(dense(32, 32), dense(32, 5, "ReLU")),
    "residual": then(dense(32, 32, "Sigmoid", use_residual=True), dense(32, 6, "Mish", use_residual=True)),
    "layer norm": then(layer_norm),
    "dropout": then(lambda models: models.Dropout(0.5)),
    "unit length": then(normalize),
    "unit length between": then(normalize, dense(32, 9, "Softplus"), normalize),
    "everything": then(dense(32, 32), lambda models: models.Dropout(), layer_norm, normalize),
    "two layers": layers([0.0, 2.0, 2.0]),
    "last layer": layers([3.0], start=2),
}
ACTIVATIONS = ("ReLU6", "LogSigmoid", "LeakyReLU", "ELU", "SELU", "CELU", "Softsign", "Hardtanh", "Hardsigmoid")
FOLDERS |= {name: then(dense(32, 8, name)) for name in (*ACTIVATIONS, "Hardswish")}


@pytest.fixture(scope="module")
def write(there, base, tmp_path_factory):
    """Saves a model of these modules, and returns the library's, read again, and the folder."""
    from sentence_transformers import models

    def save(make, **options):
        transformer = models.Transformer(base)
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


@pytest.mark.parametrize("name", ["mean", "without the prompt", "unit length", "everything"])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_prompts_truncation_and_similarities_are_the_same(write, name, similarity):
    options = {"prompts": PROMPTS, "default_prompt_name": "q", "truncate_dim": 6, "similarity_fn_name": similarity}
    theirs, folder = write(FOLDERS[name], **options)
    ours = SimCSE(folder)
    assert (ours.prompts, ours.default_prompt_name) == (theirs.prompts, "q") and ours.dimension == 6
    for method in ("encode", "encode_query", "encode_document"):
        same(getattr(ours, method)(SENTENCES), getattr(theirs, method)(SENTENCES))
    given = {"prompt": "the ", "truncate_dim": 9}
    same(ours.encode(SENTENCES, **given), theirs.encode(SENTENCES, **given))
    unit = theirs.encode(SENTENCES, normalize_embeddings=True)
    same(ours.encode(SENTENCES, normalize_to_unit=True), unit)
    expected = theirs.similarity(theirs.encode(SENTENCES), theirs.encode(SENTENCES)).numpy()
    np.testing.assert_allclose(ours.similarity(SENTENCES, SENTENCES), expected, atol=1e-4)
    expected = theirs.similarity(theirs.encode_query(SENTENCES), theirs.encode_document(SENTENCES)).numpy()
    ours.build_index(SENTENCES)
    for found, scores in zip(ours.search(SENTENCES, top_k=5), expected, strict=True):
        np.testing.assert_allclose([result.score for result in found], sorted(scores)[::-1], atol=1e-4)
        np.testing.assert_allclose([scores[result.row] for result in found], sorted(scores)[::-1], atol=1e-4)


def test_lower_case_is_obeyed(write, base, tmp_path):
    from tokenizers import Tokenizer

    theirs, folder = write(FOLDERS["mean"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text()) | {"normalizer": None}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).normalizer is None
    before = SimCSE(folder).encode("The CAT")
    edit_json(folder / "sentence_bert_config.json", do_lower_case=True)
    after = SimCSE(folder).encode("The CAT")
    same(after, type(theirs)(str(folder)).encode("The CAT"))
    assert np.abs(after - before).max() > 0.1


def test_older_names_of_classes_and_fields_are_read(write):
    theirs, folder = write(FOLDERS["everything"])
    expected = theirs.encode(SENTENCES)
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    (folder / "modules.json").write_text(json.dumps(modules))
    fields = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(fields))
    same(SimCSE(folder).encode(SENTENCES), expected)


def cnn(*modes, after=()):
    return lambda models: [models.CNN(32, 8), *(make(models) for make in after), models.Pooling(24, modes)]


def relu(models):
    """Over the tokens: the identity, and a ReLU."""
    import torch

    names = {"module_input_name": "token_embeddings", "bias": False, "init_weight": torch.eye(24)}
    return models.Dense(24, 24, activation_function=torch.nn.ReLU(), **names)


@pytest.mark.parametrize(
    "make", [cnn("mean"), cnn("max", "cls"), cnn("mean", after=[relu])], ids=["mean", "two", "relu"]
)
def test_convolutions_are_the_same_without_padding_and_are_written_as_they_were_read(write, there, make, tmp_path):
    """With padding they are not: the library convolves what the encoder has there, so a sentence depends on others."""
    theirs, folder = write(make)
    expected = theirs.encode(SENTENCES, batch_size=1)
    ours = SimCSE(folder)
    same(ours.encode(SENTENCES), expected)
    assert ours.dimension == theirs.get_embedding_dimension()
    if "+" not in ours.pooler:
        write_model_folder(load(str(folder)), tmp_path)
        same(there.SentenceTransformer(str(tmp_path)).encode(SENTENCES, batch_size=1), expected)
        same(SimCSE(tmp_path).encode(SENTENCES), expected)


def lstm(models):
    return [models.LSTM(32, 16), models.Pooling(32)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda models: [models.CNN(32, 8, [1, 2]), models.Pooling(16)], "1_CNN/cnn_config.json: kernel_sizes is"),
        (lstm, "modules.json: the module .*LSTM is not supported"),
        (layers([1.0, 2.0, 3.0]), "1_WeightedLayerPooling/model.safetensors: these weights of layers"),
        (then(dense(32, 8, "Tanhshrink")), "2_Dense/config.json: the activation '.*Tanhshrink' is not supported"),
        (then(dense(32, 8, module_output_name="other")), "2_Dense/config.json: module_output_name is 'other'"),
    ],
)
def test_other_modules_are_refused(write, make, message):
    _, folder = write(make)
    with pytest.raises(UserError, match=message):
        SimCSE(folder)
    assert SimCSE(folder, pooler="avg").encode("the cat").shape == (32,)


def test_other_kinds_of_models_are_refused(there, base, tmp_path):
    there.CrossEncoder(base, num_labels=1).save(str(tmp_path / "cross"))
    from sentence_transformers import models
    from sentence_transformers.sparse_encoder import models as sparse

    there.SparseEncoder(modules=[models.Transformer(base), models.Pooling(32), sparse.SparseAutoEncoder(32)]).save(
        str(tmp_path / "sparse")
    )
    (tmp_path / "static").mkdir()
    from tokenizers import Tokenizer

    static = models.StaticEmbedding(Tokenizer.from_file(f"{base}/tokenizer.json"), embedding_dim=8)
    there.SentenceTransformer(modules=[static]).save(str(tmp_path / "static"))
    for kind, message in (("cross", "a CrossEncoder"), ("sparse", "a SparseEncoder"), ("static", "StaticEmbedding")):
        with pytest.raises(UserError, match=message):
            SimCSE(tmp_path / kind)
