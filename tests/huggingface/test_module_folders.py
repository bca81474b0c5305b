import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file
from support import write_model
from support.models import edit_json, edit_tensors, same

from simcse_jax.errors import UserError
from simcse_jax.huggingface import module_folders
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.module_folders import CONFIG, Unsupported, is_written_as, layer_weights, read_word_weights
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
    write_folder(convolved(base), tmp_path)
    (tmp_path / MARKER).unlink()
    return tmp_path


def test_a_written_model_is_read_with_our_marker_and_without_and_a_dense_module_over_tokens_is_a_relu(base, tmp_path):
    for activation, pooler in (("none", "max"), ("relu", "avg")):
        model, folder = convolved(base, activation, pooler=pooler), tmp_path / activation
        folder.mkdir()
        write_folder(model, folder)
        for _ in range(2):
            found = load(str(folder))
            same(found, model)
            assert (found.config, found.pooler) == (model.config, pooler)
            (folder / MARKER).unlink(missing_ok=True)
    for change in ({"use_residual": True}, {"module_output_name": "sentence_embedding"}, None):
        folder = tmp_path / str(change)
        folder.mkdir()
        write_folder(convolved(base, "relu"), folder)
        (folder / MARKER).unlink()
        edit_json(folder / "2_Dense" / "config.json", **change or {})
        if change is None:
            edit_tensors(folder / "2_Dense", lambda own: {name: 2 * value for name, value in own.items()})
        with pytest.raises(UserError, match="only one Pooling directly after Transformer, CNN"):
            choose_pooler(load(str(folder)), None)


def test_embeddings_are_pooled_from_the_convolutions_and_what_is_damaged_or_unknown_is_refused(folder, base):
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
    whole = (folder / "1_CNN" / CONFIG).read_text()
    for field, value, named in (
        *(("out_channels", value, "'convs.0.weight' has shape") for value in (0, 7, "6")),
        *(("kernel_sizes", value, "kernel_sizes is") for value in ([], [1, "3"], 3)),
        ("kernel_sizes", [1], "'convs.1.bias' is not supported"),
        ("kernel_sizes", [2, 3], r"\[2, 3\]"),
        ("stride_sizes", [1, 2], "stride_sizes is"),
    ):
        (folder / "1_CNN" / CONFIG).write_text(whole)
        edit_json(folder / "1_CNN" / CONFIG, **{field: value})
        with pytest.raises(UserError, match=named):
            choose_pooler(load(str(folder)), None)


def test_poolers_of_several_layers_are_weights_and_poolers_are_written_as_the_same_modules():
    weights = {"avg_top2": [0, 0, 1, 1], "avg_first_last": [0, 1, 0, 1], "avg_static_last": [1, 0, 0, 1]}
    assert {pooler: layer_weights(pooler, 3).tolist() for pooler in weights} == weights
    assert layer_weights("avg", 3) is None and layer_weights("avg_first_last", 1).tolist() == [0, 2]
    tokens, of_two = module_folders.pooling_for("avg_top2", 2)
    assert (tokens, of_two.tolist()) == ("avg", [0, 1, 1]) and module_folders.pooling_for("max", 2) == ("max", None)
    assert is_written_as("cls_before_pooler", 2, "cls") and is_written_as("avg_first_last", 2, "avg_top2")
    assert is_written_as("avg_first_last", 1, "avg") and not is_written_as("cls", 3, "avg")
    assert not any(is_written_as("avg_first_last", 3, read) for read in ("avg_top2", "avg"))


def test_a_module_has_its_tensors_alone_all_finite_and_of_word_weights_those_of_mask_tokens_are_read(tmp_path):
    fields, tensors = module_folders.word_weights_module(["a", "[MASK]", "b"], "[MASK]")
    assert tensors["emb_layer.weight"].tolist() == [[0.0], [1.0], [0.0]]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert read_word_weights(tmp_path, "avg") == "mask_token"
    for changes, pooler, error in (
        ({}, "max", Unsupported),
        *(({"word_weights": x}, "avg", Unsupported) for x in ({"a": 1.0}, {"[MASK]": 2.0}, ["a"])),
        ({"unknown_word_weight": 0.5}, "avg", Unsupported),
    ):
        (tmp_path / "config.json").write_text(json.dumps(fields | changes))
        with pytest.raises(error, match="weights that count mask tokens alone"):
            read_word_weights(tmp_path, pooler)
    a, b = np.ones((2, 3), np.float16), np.zeros(1, np.float32)
    save_file({"a": a, "b": b}, tmp_path / "model.safetensors")
    found = module_folders.read_tensors(tmp_path, {"a": (2, 3), "b": (1,)})
    assert found["a"].dtype == np.float32 and found["a"].tolist() == [[1, 1, 1]] * 2
    for tensors, shapes, kind, message in (
        ({"a": a}, {"a": (2, 3), "c": (1,)}, UserError, "the tensor 'c' is missing"),
        ({"a": a, "b": b}, {"a": (3, 2), "b": (1,)}, UserError, r"'a' has shape \(2, 3\), but .* \(3, 2\)"),
        ({"a": a, "b": b}, {"a": (2, 3)}, Unsupported, "the tensor 'b' is not supported"),
        ({"a": b * np.nan}, {"a": (1,)}, UserError, "'a'.* not finite"),
        ({"a": b.astype(np.int8)}, {"a": (1,)}, UserError, "'a'.* int8"),
    ):
        save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(kind, match=message):
            module_folders.read_tensors(tmp_path, shapes)
