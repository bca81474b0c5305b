"""Which part of a run trains: what fits an encoder, what is refused, and the file of the rest."""

import dataclasses

import numpy as np
import pytest
from support import CONFIGS

from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.peft import base_fingerprint
from simcse_jax.models import partial as split
from simcse_jax.models.config import EncoderConfig, Lora, Partial, Site
from simcse_jax.runs import partial
from simcse_jax.runs.state import initial_params, split_shapes, trained_shapes, with_parts


def config_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return config


def encoder_of(kind="bert"):
    return EncoderConfig.from_hugging_face(CONFIGS[kind], "test")


def test_the_fields_become_a_part_of_the_encoder():
    encoder = encoder_of()
    assert partial.partial_of(default_config().model, encoder) is None and partial.partial_of({}, encoder) is None
    assert not partial.model_has_lora({}) and partial.model_has_lora(config_of(lora__rank=1).model)
    assert partial.partial_of(config_of(freeze__layers=1).model, encoder) == Partial(False, 1)
    found = partial.partial_of(config_of(lora__rank=4, lora__alpha=2.0, freeze__layers=1).model, encoder)
    assert found == Partial(False, 1, Lora(4, 2.0, (Site("qkv", 0, 3), Site("qkv", 2, 3)))) and found.lora.scale == 0.5


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("bert", {"freeze__layers": 3}, r"freeze\.layers=3: .* has 2 layers"),
        ("bert", {"freeze__layers": 2, "freeze__embeddings": True}, "nothing to train"),
        ("bert", {"freeze__layers": 2, "lora__rank": 2}, "none is left for LoRA"),
        ("bert", {"lora__rank": 33}, r"lora\.rank=33: is above 32"),
        ("bert", {"lora__rank": 2, "lora__targets": ("querry",)}, r"lora\.targets: 'querry' is no .* one is query"),
        ("albert", {"freeze__layers": 1}, r"freeze\.layers=1: layers of .* share their weights; .* one of 0, 2, 3"),
    ],
)
def test_what_does_not_fit_is_refused(kind, fields, said):
    with pytest.raises(UserError, match=said):
        partial.partial_of(config_of(**fields).model, encoder_of(kind))


def test_all_may_be_frozen_where_a_head_or_convolutions_train():
    frozen = {"freeze__layers": 2, "freeze__embeddings": True}
    for more in ({"mlp": "always"}, {"convolutions__widths": ("3",)}):
        assert partial.partial_of(config_of(**frozen, **more).model, encoder_of()) == Partial(True, 2)


def test_word_vectors_have_no_parts(glove):
    config = load(glove).config
    for fields in ({"lora__rank": 1}, {"freeze__embeddings": True}):
        with pytest.raises(UserError, match=r"config\.model\..* averages word vectors and has no layers"):
            partial.partial_of(config_of(**fields).model, config)


def test_parameters_are_split_as_their_shapes_are(tiny_bert):
    """And those of the run's start are the model's: LoRA changes nothing yet."""
    model = load(str(tiny_bert))
    for fields in ({"freeze__layers": 1, "freeze__embeddings": True}, {"lora__rank": 2, "dual_encoder": True}):
        config = config_of(**fields, init_from=str(tiny_bert))
        encoder = with_parts(model.config, config.model)
        params = initial_params(config, model)
        shapes, rest = split_shapes(model.config, config)
        trained, frozen = split.split(params, encoder)
        assert {name: value.shape for name, value in trained.items()} == {k: v.shape for k, v in shapes.items()}
        assert frozen.keys() == rest.keys() == partial.frozen_params(config.model, model).keys() and frozen
        assert trained_shapes(model.config, config) == shapes
        merged, own = (
            split.merged(split.whole(trained, frozen), encoder),
            config_of(dual_encoder="lora__rank" in fields),
        )
        start = initial_params(own, model)
        assert merged.keys() == start.keys()
        for name, value in start.items():
            np.testing.assert_array_equal(merged[name], value)


def test_the_file_is_read_as_it_was_written(tiny_bert, tmp_path):
    model, config = load(str(tiny_bert)), config_of(lora__rank=2)
    frozen = partial.frozen_params(config.model, model)
    _, shapes = split_shapes(model.config, config)
    partial.write_frozen(frozen, tmp_path)
    run = {"sha256": {partial.FINGERPRINT: base_fingerprint(frozen)}}
    for name, value in partial.read_frozen(tmp_path, run, shapes).items():
        np.testing.assert_array_equal(value, frozen[name])
    assert partial.read_frozen(tmp_path / "none", run, {}) == {}
    name = next(iter(frozen))
    for changed in (frozen | {name: frozen[name] + 1}, {name: frozen[name]}):
        partial.write_frozen(changed, tmp_path)
        with pytest.raises(UserError, match=r"frozen\.safetensors: damaged: not the parameters that the run froze"):
            partial.read_frozen(tmp_path, run, shapes)
    (tmp_path / partial.FILE).unlink()
    with pytest.raises(UserError, match=r"frozen\.safetensors: is missing; copy it from a backup, or run"):
        partial.read_frozen(tmp_path, run, shapes)


def test_an_adapter_is_read_only_where_one_is_named(tiny_bert):
    model = load(str(tiny_bert))
    assert partial.own_adapter(config_of(lora__rank=2).model, model) is None
    assert partial.own_adapter({}, dataclasses.replace(model)) is None
    with pytest.raises(UserError, match=r"lora\.init_from=none: has no adapter_config\.json"):
        partial.own_adapter(config_of(lora__rank=2, lora__init_from="none").model, model)
