import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS
from support.models import edit_tensors, same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.names import read_head, to_params, to_tensors
from simcse_jax.models.config import EncoderConfig


def test_tensors_survive_the_round_trip(tiny_folder):
    tensors = {k: v for k, v in load_file(tiny_folder / "model.safetensors").items()}
    model = load(str(tiny_folder))
    back = to_tensors(model.params, model.config.model_type)
    assert {name for name in tensors if not name.startswith("pooler")} == set(back)
    for name, value in back.items():
        np.testing.assert_array_equal(value, tensors[name])


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {f"bert.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"roberta.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"mpnet.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"distilbert.{k}": v for k, v in tensors.items()},
        lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")},
        lambda tensors: {
            k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for k, v in tensors.items()
        },
        lambda tensors: tensors | {"cls.predictions.bias": np.zeros(40, np.float32)},
    ],
    ids=["bert.", "roberta.", "mpnet.", "distilbert.", "no pooler", "gamma and beta", "with a language-model head"],
)
def test_common_variants_of_checkpoints(tiny_folder, folder, change):
    edit_tensors(folder, change)
    same(load(str(folder)), load(str(tiny_folder)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_weights_are_widened(tiny_folder, folder, dtype):
    edit_tensors(folder, lambda tensors: {k: v.astype(dtype) for k, v in tensors.items()})
    loaded, original = load(str(folder)), load(str(tiny_folder))
    for name, value in loaded.params.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, original.params[name], rtol=1e-2, atol=1e-3)


WORDS = "embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 1000}, r"'encoder\.layer\.2\.output\.LayerNorm\.weight' is missing"),
        ({"vocab_size": 1 << 26}, rf"'{WORDS}' has shape \(40, 32\), but config\.json asks for \(67108864, 32\)"),
        ({"hidden_size": 1 << 16}, rf"'{WORDS}' has shape"),
        ({"intermediate_size": 1 << 20}, r"intermediate\.dense\.bias' has shape"),
        ({"max_position_embeddings": 1 << 26}, r"position_embeddings\.weight' has shape"),
    ],
    ids=str,
)
def test_a_huge_config_is_refused_before_its_network_is_built(tiny_bert, changes, message, monkeypatch):
    monkeypatch.setattr("simcse_jax.huggingface.names.build", None)
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"] | changes, "m")
    with pytest.raises(UserError, match=message):
        to_params(load_file(tiny_bert / "model.safetensors"), config, None, "m")


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.bool_, np.complex64])
def test_weights_of_another_kind_are_refused(tiny_bert, kind):
    tensors = load_file(tiny_bert / "model.safetensors")
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"], "m")
    with pytest.raises(UserError, match=f"m: '{WORDS}' has the type {np.dtype(kind)}; weights must be float16, bfl"):
        to_params(tensors | {WORDS: tensors[WORDS].astype(kind)}, config, None, "m")
    head = dict.fromkeys(("cls.predictions.bias",), np.zeros(40, kind))
    assert read_head(tensors | head, config) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_weights_that_are_not_finite_are_refused(tiny_bert, value):
    tensors = load_file(tiny_bert / "model.safetensors")
    tensors[WORDS] = tensors[WORDS].astype(np.float64)
    tensors[WORDS][3, 4] = value
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"], "m")
    with pytest.raises(UserError, match=f"m: '{WORDS}' has values that are not finite"):
        to_params(tensors, config, None, "m")


def test_weights_whose_sum_overflows_are_finite(tiny_bert):
    tensors = load_file(tiny_bert / "model.safetensors")
    tensors[WORDS][:] = 3e38
    to_params(tensors, EncoderConfig.from_hugging_face(CONFIGS["bert"], "m"), None, "m")
