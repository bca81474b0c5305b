import re

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS, ENCODERS, write_model
from support.models import edit_json, edit_tensors, same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.weight_names import NAMES, head_tensors, read_head, to_params, to_tensors
from simcse_jax.models.config import EncoderConfig


def older(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


VARIANTS = {
    "no pooler": lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")},
    "gamma and beta": lambda tensors: {older(k): v for k, v in tensors.items()},
    "with a language-model head": lambda tensors: tensors | {"cls.predictions.bias": np.zeros(40, np.float32)},
    "another prefix": lambda tensors: {f"roberta.{k}": v for k, v in tensors.items()},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_common_variants_of_checkpoints(tiny_bert, bert, name):
    edit_tensors(bert, VARIANTS[name])
    same(load(str(bert)), load(str(tiny_bert)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_weights_are_widened(tiny_bert, bert, dtype):
    edit_tensors(bert, lambda tensors: {k: v.astype(dtype) for k, v in tensors.items()})
    loaded, original = load(str(bert)), load(str(tiny_bert))
    for name, value in loaded.params.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, original.params[name], rtol=1e-2, atol=1e-3)


WORDS = "embeddings.word_embeddings.weight"


def test_weights_that_are_no_finite_numbers_and_a_huge_config_are_refused(tiny_bert):
    tensors = load_file(tiny_bert / "model.safetensors")
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"], "m")
    for kind in (np.int8, np.int64, np.bool_, np.complex64):
        with pytest.raises(UserError, match=f"m: '{WORDS}' has the type {np.dtype(kind)}"):
            to_params(tensors | {WORDS: tensors[WORDS].astype(kind)}, config, None, "m")
        assert read_head(tensors | {"cls.predictions.bias": np.zeros(40, kind)}, config) is None
    for value in (np.nan, np.inf, -np.inf, 1e300):
        words = tensors[WORDS].astype(np.float64)
        words[3, 4] = value
        with pytest.raises(UserError, match=f"m: '{WORDS}' has values that are not finite"):
            to_params(tensors | {WORDS: words}, config, None, "m")
    to_params(tensors | {WORDS: np.full_like(tensors[WORDS], 3e38)}, config, None, "m")  # whose sum overflows
    for field, value, tensor in (
        ("num_hidden_layers", 100, "encoder.layer.2.* is missing"),
        *(("vocab_size", 1 << 26, WORDS), ("hidden_size", 1 << 16, "embeddings.")),
        ("intermediate_size", 1 << 20, r"intermediate\.dense\."),
        ("max_position_embeddings", 1 << 26, r"position_embeddings\.weight"),
    ):
        config = EncoderConfig.from_hugging_face(CONFIGS["bert"] | {field: value}, "m")
        with pytest.raises(UserError, match=tensor):
            to_params(load_file(tiny_bert / "model.safetensors"), config, None, "m")


QUICK = ("bert", "mpnet", "distilbert", "ernie", "electra", "albert", "modernbert", "nomic_bert")
MORE = [pytest.param(kind, marks=pytest.mark.slow) for kind in ENCODERS if kind not in QUICK]


@pytest.mark.parametrize("kind", [*QUICK, *MORE])
def test_tensors_survive_the_round_trip_with_their_prefix_and_without(kind, tmp_path):
    folder = write_model(tmp_path / "model", kind)
    model, tensors = load(str(folder)), load_file(folder / "model.safetensors")
    names, back = NAMES[kind], to_tensors(model.params, model.config)
    assert {name for name in tensors if not name.startswith("pooler")} == set(back)
    for name, value in back.items():
        np.testing.assert_array_equal(value, tensors[name])
    edit_tensors(folder, lambda own: {names.prefix + name: value for name, value in own.items()})
    same(load(str(folder)), model)


def test_electra_s_embeddings_of_full_width_have_no_dense_layer_and_nomic_s_own_head_the_norm_s_biases_alone(tmp_path):
    folder = write_model(tmp_path / "model", "electra", embedding_size=32)
    assert not any("projection" in name for name in load(str(folder)).params)
    edit_tensors(folder, lambda own: own | {"embeddings_project.weight": np.ones((32, 32), np.float32)})
    with pytest.raises(UserError, match=r"has the tensor 'embeddings_project\.weight', for which"):
        load(str(folder))
    folder, generator = write_model(tmp_path / "nomic", "nomic_bert"), np.random.default_rng(0)
    shapes, start = {"dense.weight": (32, 32), "layer_norm.weight": (32,), "layer_norm.bias": (32,)}, "cls.predictions"
    head = {f"{start}.transform.{name}": np.float32(generator.normal(size=x)) for name, x in shapes.items()}
    edit_tensors(folder, lambda own: own | head | {f"{start}.decoder.weight": own[WORDS]})
    found = load(str(folder)).language_model
    assert found is not None and not found["dense.bias"].any() and not found["bias"].any()
    written = head_tensors(found, "nomic_bert")
    for name, value in head.items():
        np.testing.assert_array_equal(written[name], value)
    assert written.keys() - head.keys() == {f"{start}.transform.dense.bias", f"{start}.bias"}


CONTRADICTIONS = {  # by model type and field, the tensor that the refusal names
    "bert": {"type_vocab_size": (3, "token_type_embeddings.weight"), "num_hidden_layers": (3, "encoder.layer.2.")},
    "electra": {"embedding_size": (8, "embeddings."), "hidden_size": (64, "embeddings_project.")},
    "albert": {"num_hidden_groups": (3, "groups.2.")},
    "ernie": {"use_task_id": (False, "embeddings.task_type_embeddings.weight")},
    "modernbert": {
        **{"intermediate_size": (49, "layers.0.mlp.Wi.weight"), "mlp_bias": (True, "layers.0.mlp.Wi.bias")},
        **{"attention_bias": (True, "layers.0.attn.W"), "norm_bias": (True, "embeddings.norm.bias")},
    },
    "distilbert": {"hidden_dim": (49, "ffn.lin1.")},
}


@pytest.mark.parametrize("model_type", CONTRADICTIONS)
def test_a_config_that_contradicts_its_weights_names_the_tensor(model_type, tmp_path):
    for field, (value, tensor) in CONTRADICTIONS[model_type].items():
        folder = write_model(tmp_path / field, model_type)
        edit_json(folder / "config.json", **{field: value})
        with pytest.raises(UserError, match=f"{re.escape(tensor)}.*(config.json|must have|is missing)"):
            load(str(folder))


SURPLUS = [
    ("modernbert", "layers.0.mlp.Wo.bias"),
    ("modernbert", "layers.1.attn_norm.bias"),
    ("modernbert", "layers.0.attn_norm.weight"),
    ("nomic_bert", "encoder.layers.0.attn.out_proj.bias"),
    ("nomic_bert", "embeddings.position_embeddings.weight"),
    ("bert", "embeddings.task_type_embeddings.weight"),
    ("bert", "encoder.layer.1.attention.self.distance_embedding.weight"),
    ("bert", "encoder.relative_attention_bias.weight"),
]


@pytest.mark.parametrize(("model_type", "tensor"), SURPLUS)
def test_weights_of_parts_that_the_config_lacks_are_named(model_type, tensor, tmp_path):
    folder = write_model(tmp_path / "model", model_type)
    edit_tensors(folder, lambda own: own | {"embeddings.position_ids": np.arange(64)[None]})
    assert load(str(folder))
    edit_tensors(folder, lambda own: own | {tensor: np.ones(32, np.float32)})
    with pytest.raises(UserError, match=f"has the tensor '{tensor}', for which config.json does not ask"):
        load(str(folder))
    if "layer" in tensor and "0" not in tensor:
        assert load(str(folder), 1).config.num_layers == 1  # layers after the last one do not matter
