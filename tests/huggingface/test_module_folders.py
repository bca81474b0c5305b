import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file
from support import write_model
from support.models import edit_json, edit_tensors, same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.module_folders import (
    CONFIG,
    Unsupported,
    is_written_as,
    layer_weights,
    pooling_for,
    read_tensors,
    read_word_weights,
    word_weights_module,
)
from simcse_jax.huggingface.tokenizer import MARKER
from simcse_jax.huggingface.write import write_model as write_folder
from simcse_jax.models.config import Convolutions
from simcse_jax.models.convolutions import fresh
from simcse_jax.simcse import SimCSE


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return load(str(write_model(tmp_path_factory.mktemp("base") / "bert", "bert")))


def convolved(base, activation="none", widths=(1, 3), pooler="avg"):
    config = dataclasses.replace(base.config, convolutions=Convolutions(widths, 6, activation))
    params = {name: value for name, value in base.params.items() if name.startswith("encoder.")}
    params |= {name: np.asarray(value) for name, value in fresh(config, jax.random.key(1)).items()}
    return dataclasses.replace(base, config=config, params=params, pooler=pooler)


@pytest.fixture
def folder(base, tmp_path):
    """A written model with convolutions and no activation, without our marker."""
    write_folder(convolved(base), tmp_path)
    (tmp_path / MARKER).unlink()
    return tmp_path


@pytest.mark.parametrize(("activation", "pooler"), [("none", "max"), ("relu", "avg")])
@pytest.mark.parametrize("marked", [True, False])
def test_a_written_model_is_read_again(base, activation, pooler, marked, tmp_path):
    model = convolved(base, activation, pooler=pooler)
    write_folder(model, tmp_path)
    assert (tmp_path / MARKER).exists()
    if not marked:
        (tmp_path / MARKER).unlink()
    found = load(str(tmp_path))
    same(found, model)
    assert (found.config, found.pooler) == (model.config, pooler)


def test_embeddings_are_pooled_from_the_convolutions(folder, base):
    ours, plain = SimCSE(folder), SimCSE(base.name)
    assert ours.dimension == 12 and ours.encode("the cat").shape == (12,)
    np.testing.assert_allclose(ours.encode(["a cat", "the dog ran home"])[0], ours.encode("a cat"), atol=1e-5)
    assert ours.tokens.hidden_states and plain.dimension == 32
    with pytest.raises(UserError, match=r"the pooler avg_top2 reads several layers, but .* has convolutions"):
        choose_pooler(load(str(folder)), "avg_top2")
    # The index of a model belongs to its convolutions too.
    activation = dataclasses.replace(ours.config.convolutions, activation="relu")
    before = ours.identity()
    ours.config = dataclasses.replace(ours.config, convolutions=activation)
    assert ours.identity() != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_word_embedding_dimension": 16}, "damaged: convolutions of 16 elements, where the encoder has 32"),
        ({"out_channels": 0}, "out_channels is 0, not a number from 1 to"),
        ({"out_channels": 7}, r"'convs.0.weight' has shape \(6, 32, 1\), not \(7, 32, 1\)"),
        ({"kernel_sizes": []}, r"kernel_sizes is \[\], not a list of whole numbers"),
        ({"kernel_sizes": [1, "3"]}, "not a list of whole numbers"),
        ({"kernel_sizes": [1]}, "the tensor 'convs.1.bias' is not supported"),
        ({"kernel_sizes": [2, 3]}, r"\[2, 3\]; only odd ones up to 99 are supported"),
        ({"stride_sizes": [1, 2]}, r"stride_sizes is \[1, 2\]; only 1 is supported"),
    ],
)
def test_what_is_damaged_or_unknown_is_refused(folder, change, message):
    edit_json(folder / "1_CNN" / CONFIG, **change)
    with pytest.raises(UserError, match=message) as error:
        SimCSE(folder)
    assert "\n" not in str(error.value)


def test_a_dense_module_over_tokens_is_a_relu_or_refused(base, tmp_path):
    write_folder(convolved(base, "relu"), tmp_path)
    (tmp_path / MARKER).unlink()
    shutil.copytree(tmp_path, tmp_path / "scaled")
    edit_tensors(tmp_path / "scaled" / "2_Dense", lambda tensors: {"linear.weight": 2 * tensors["linear.weight"]})
    shutil.copytree(tmp_path, tmp_path / "residual", ignore=shutil.ignore_patterns("scaled"))
    edit_json(tmp_path / "residual" / "2_Dense" / "config.json", use_residual=True)
    edit_json(tmp_path / "2_Dense" / "config.json", module_output_name="sentence_embedding")
    for changed in (tmp_path / "scaled", tmp_path / "residual", tmp_path):
        with pytest.raises(UserError, match="only one Pooling directly after Transformer, CNN"):
            SimCSE(changed)


def test_a_module_has_these_tensors_and_no_others(tmp_path):
    save_file({"a": np.ones((2, 3), np.float16), "b": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    found = read_tensors(tmp_path, {"a": (2, 3), "b": (1,)})
    assert found["a"].dtype == np.float32 and found["a"].tolist() == [[1, 1, 1]] * 2
    for shapes, kind, message in (
        ({"a": (2, 3), "c": (1,)}, UserError, "the tensor 'c' is missing"),
        ({"a": (3, 2), "b": (1,)}, UserError, r"the tensor 'a' has shape \(2, 3\), not \(3, 2\)"),
        ({"a": (2, 3)}, Unsupported, "the tensor 'b' is not supported"),
    ):
        with pytest.raises(kind, match=message):
            read_tensors(tmp_path, shapes)


@pytest.mark.parametrize(
    ("value", "message"), [(np.full(2, np.nan, np.float32), "not finite"), (np.ones(2, np.int8), "has the type int8")]
)
def test_weights_are_finite_numbers(value, message, tmp_path):
    save_file({"a": value}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=message):
        read_tensors(tmp_path, {"a": (2,)})


def test_layer_weights():
    assert layer_weights("avg", 3) is None
    np.testing.assert_array_equal(layer_weights("avg_top2", 3), [0, 0, 1, 1])
    np.testing.assert_array_equal(layer_weights("avg_first_last", 3), [0, 1, 0, 1])
    np.testing.assert_array_equal(layer_weights("avg_static_last", 3), [1, 0, 0, 1])
    np.testing.assert_array_equal(layer_weights("avg_first_last", 1), [0, 2])


@pytest.mark.parametrize(
    ("pooler", "layers", "read", "same"),
    [
        ("cls_before_pooler", 2, "cls", True),
        ("avg_first_last", 2, "avg_top2", True),
        ("avg_first_last", 1, "avg", True),
        ("avg_first_last", 3, "avg_top2", False),
        ("avg_first_last", 3, "avg", False),
        ("cls", 3, "avg", False),
        ("avg", 3, "avg+cls", False),
    ],
)
def test_poolers_are_written_as_the_same_modules(pooler, layers, read, same):
    assert is_written_as(pooler, layers, read) is same


def test_a_mean_of_layers_is_written_before_the_mean_of_tokens():
    tokens, weights = pooling_for("avg_top2", 2)
    assert (tokens, weights.tolist()) == ("avg", [0, 1, 1])
    assert pooling_for("max", 2) == ("max", None)


def test_of_weights_of_words_only_those_of_mask_tokens_are_read(tmp_path):
    fields, tensors = word_weights_module(["a", "[MASK]", "b"], "[MASK]")
    assert tensors["emb_layer.weight"].tolist() == [[0.0], [1.0], [0.0]]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert read_word_weights(tmp_path, "avg") == "mask_token"
    with pytest.raises(Unsupported, match="only weights that count mask tokens alone, in a mean, are supported"):
        read_word_weights(tmp_path, "max")
    for changes in ({"word_weights": {"a": 1.0}}, {"unknown_word_weight": 0.5}, {"word_weights": {"[MASK]": 2.0}}):
        (tmp_path / "config.json").write_text(json.dumps(fields | changes))
        with pytest.raises(Unsupported, match="only weights that count mask tokens alone"):
            read_word_weights(tmp_path, "avg")
    (tmp_path / "config.json").write_text(json.dumps(fields | {"word_weights": ["a"]}))
    with pytest.raises(UserError, match="damaged: it must have 'vocab', a list, and 'word_weights'"):
        read_word_weights(tmp_path, "avg")
