import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS, assert_arrays, random_model

from simcse_jax.choices import HEADS
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import Pretrained, load
from simcse_jax.huggingface.peft import base_fingerprint
from simcse_jax.models import partial as split
from simcse_jax.models.config import Convolutions, EncoderConfig, Lora, Partial, Site
from simcse_jax.models.language_model import fresh_head
from simcse_jax.models.parameters import subset
from simcse_jax.models.projector import Projector
from simcse_jax.runs import state
from simcse_jax.runs.state import ModelSpec, add_parts, initial_params, model_spec, split_shapes

ALL = {"mlm": {"weight": 0.1}, "softmax_nli": {"weight": 1.0}, "info_nce": {"weight": 1.0}}
HEAD = {"head.kernel", "head.bias"}


@pytest.fixture(scope="module")
def model():
    _, params, config = random_model(num_layers=1, with_head=False)
    params = {name: np.asarray(value) for name, value in params.items()}
    return Pretrained("tiny", Path(), config, params, "cls", 32)


def spec_of(objective=ALL, seed=5, mlp="train", **fields):
    return ModelSpec(head=HEADS[mlp], objectives=objective, seed=seed, **fields)


def test_the_shapes_are_those_of_the_initial_parameters(model):
    for objective, dual_encoder, mlp in (({}, False, "train"), (ALL, True, "train"), (ALL, False, "none")):
        spec = spec_of(objective, mlp=mlp, dual_encoder=dual_encoder)
        found = {name: (value.shape, value.dtype) for name, value in initial_params(spec, model).items()}
        shapes = split_shapes(model.config, spec)[0]
        assert found == {name: (shape.shape, jnp.float32) for name, shape in shapes.items()}
    own = {f"language_model.{part}" for part in ("dense.kernel", "dense.bias", "norm.scale", "norm.bias", "bias")}
    plain = split_shapes(model.config, spec_of({}))[0]
    assert plain.keys() == model.params.keys() | HEAD
    assert split_shapes(model.config, spec_of())[0].keys() - plain.keys() == own | {"softmax_nli.kernel"}
    second = split_shapes(model.config, spec_of({}, dual_encoder=True))[0].keys() - plain.keys()
    assert second == {f"second.{name}" for name in plain}
    for expected in (True, False):
        assert add_parts(model.config, spec_of(attention_kernels=expected)).attention_kernels == expected


def test_each_is_drawn_from_a_stream_of_its_own_and_the_model_s_own_parts_are_trained_further(model, capsys):
    """The numbers are written down: a run that resumes with other code must start from the same."""
    params = initial_params(spec_of(dual_encoder=True), model)

    def drawn(stream, shape):
        return 0.02 * jax.random.normal(jax.random.fold_in(jax.random.key(5, impl="threefry2x32"), stream), shape)

    size = model.config.hidden_size
    for name, stream, shape in (
        ("head.kernel", 0x68656164, (size, size)), ("second.head.kernel", 0x68656165, (size, size)),
        ("language_model.dense.kernel", 0x68656166, (size, size)), ("softmax_nli.kernel", 0x68656167, (3 * size, 3)),
    ):  # fmt: skip
        np.testing.assert_array_equal(params[name], drawn(stream, shape), err_msg=name)
    other = initial_params(spec_of(seed=6), model)
    assert np.abs(other["softmax_nli.kernel"] - params["softmax_nli.kernel"]).max() > 0.01
    initial_params(spec_of(), model)
    assert "tiny: has no language-model head; objective.mlm starts with a fresh one" in capsys.readouterr().out
    size = model.config.hidden_size
    head = {"head.kernel": np.full((size, size), 2.0, np.float32), "head.bias": np.ones(size, np.float32)}
    fresh = fresh_head(model.config, jax.random.key(1))
    language_model = {name: np.asarray(value) + 1 for name, value in fresh.items()}
    own = dataclasses.replace(model, params=model.params | head, language_model=language_model)
    params = initial_params(spec_of(dual_encoder=True), own)
    assert capsys.readouterr().out.split("\n")[:-1] == ["tiny: its own head is trained further"]
    for part, expected in (("", head), ("second.", head), ("language_model.", language_model)):
        assert_arrays(subset(params, part), expected)
    assert not HEAD & initial_params(spec_of(mlp="none"), own).keys()
    objective = {"replaced_token_detection": {"weight": 0.1}}
    spec = spec_of(objective, dual_encoder=True, projector=Projector(("2D", "D")))
    params, shapes = initial_params(spec, model), split_shapes(model.config, spec)[0]
    assert {name: value.shape for name, value in params.items()} == {name: x.shape for name, x in shapes.items()}
    plain = split_shapes(model.config, spec_of({}, dual_encoder=True))[0].keys()
    own = {f"projector.{part}" for part in ("layers.0.kernel", "norms.0.scale", "norms.0.bias", "layers.1.kernel")}
    own |= {"replaced_token_detection.kernel", "replaced_token_detection.bias"}
    assert params.keys() - plain == own | {f"discriminator.{name}" for name in model.params}
    assert_arrays(subset(params, "discriminator."), model.params)
    kernel = params["projector.layers.0.kernel"]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5, impl="threefry2x32"), 0x68656169), 0)
    np.testing.assert_array_equal(kernel, 0.02 * jax.random.normal(key, kernel.shape))


def model_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return model_spec(config)


def encoder_of(kind="bert"):
    return EncoderConfig.from_hugging_face(CONFIGS[kind], "test")


def test_the_fields_become_a_part_of_the_encoder_and_what_does_not_fit_is_refused(glove):
    convolutions = model_of(convolutions__widths=("1", "3"), convolutions__channels=8, convolutions__activation="relu")
    assert convolutions.convolutions == Convolutions((1, 3), 8, "relu") and model_of().convolutions is None
    encoder = encoder_of()
    assert state.make_partial(model_of(), encoder) is None and model_of().lora is None
    projector = {"widths": "2D,D", "bias": True, "last_norm": "none", "statistics": "each", "objectives": ["x"]}
    run = model_spec(default_config().to_dict() | {"projector": projector})
    assert run.projector == Projector(("2D", "D"), True, "none", "each") and model_of().projector is None
    assert state.make_partial(model_of(freeze__layers=1), encoder) == Partial(False, 1)
    found = state.make_partial(model_of(lora__rank=4, lora__alpha=2.0, freeze__layers=1), encoder)
    assert found == Partial(False, 1, Lora(4, 2.0, (Site("qkv", 0, 3), Site("qkv", 2, 3)))) and found.lora.scale == 0.5
    bert, words = encoder, load(glove).config
    for encoder, fields, said in (
        (bert, {"freeze__layers": 3}, r"freeze\.layers=3: must be one of 0, 1, 2 for"),
        (bert, {"freeze__layers": 2, "freeze__embeddings": True}, "nothing to train of"),
        (bert, {"freeze__layers": 2, "lora__rank": 2}, "nothing to train of"),
        (bert, {"lora__rank": 2, "lora__targets": ("querry",)}, r"lora\.targets: 'querry' is not .* one is query"),
        (encoder_of("albert"), {"freeze__layers": 1}, r"freeze\.layers=1: must be one of 0, 2, 3"),
        (words, {"lora__rank": 1}, r"config\.model\.lora: .* averages word vectors, without layers"),
        (words, {"freeze__embeddings": True}, r"config\.model\.freeze: .* averages word vectors, without layers"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            state.make_partial(model_of(**fields), encoder)
    frozen = {"freeze__layers": 2, "freeze__embeddings": True}  # where a head or convolutions train
    for more in ({"mlp": "always"}, {"convolutions__widths": ("3",)}):
        assert state.make_partial(model_of(**frozen, **more), bert) == Partial(True, 2)


def test_parameters_are_split_as_their_shapes_are_and_what_is_frozen_is_read_as_it_was_written(tiny_bert, tmp_path):
    """And those of the run's start are the model's: LoRA changes nothing yet."""
    model = load(str(tiny_bert))
    for fields in ({"freeze__layers": 1, "freeze__embeddings": True}, {"lora__rank": 2, "dual_encoder": True}):
        spec = model_of(**fields, init_from=str(tiny_bert))
        encoder = add_parts(model.config, spec)
        params = initial_params(spec, model)
        shapes, rest = split_shapes(model.config, spec)
        trained, frozen = split.split(params, encoder)
        assert {name: value.shape for name, value in trained.items()} == {k: v.shape for k, v in shapes.items()}
        assert frozen.keys() == rest.keys() == state.frozen_params(spec, model).keys() and frozen
        assert split_shapes(model.config, spec)[0] == shapes
        merged = split.merged(split.whole(trained, frozen), encoder)
        start = initial_params(model_of(dual_encoder="lora__rank" in fields), model)
        assert merged.keys() == start.keys()
        assert_arrays(merged, start)
    model, spec = load(str(tiny_bert)), model_of(lora__rank=2)
    assert state.starting_adapter(spec, model) is None  # none is named
    with pytest.raises(UserError, match=r"lora\.init_from=none: has no adapter_config\.json"):
        state.starting_adapter(model_of(lora__rank=2, lora__init_from="none"), model)
    frozen = state.frozen_params(spec, model)
    _, shapes = split_shapes(model.config, spec)
    state.write_frozen(frozen, tmp_path)
    run = {"sha256": {state.FINGERPRINT: base_fingerprint(frozen)}}
    assert_arrays(frozen, state.read_frozen(tmp_path, run, shapes))
    assert state.read_frozen(tmp_path / "none", run, {}) == {}
    name = next(iter(frozen))
    for changed in (frozen | {name: frozen[name] + 1}, {name: frozen[name]}):
        state.write_frozen(changed, tmp_path)
        with pytest.raises(UserError, match=r"frozen\.safetensors: damaged: not what the run froze"):
            state.read_frozen(tmp_path, run, shapes)
    (tmp_path / state.FROZEN_FILE).unlink()
    with pytest.raises(UserError, match=r"frozen\.safetensors: "):
        state.read_frozen(tmp_path, run, shapes)
