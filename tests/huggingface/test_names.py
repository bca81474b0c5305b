import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from support.models import edit_tensors, same

from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.names import to_tensors


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
        lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")},
        lambda tensors: {
            k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for k, v in tensors.items()
        },
        lambda tensors: tensors | {"cls.predictions.bias": np.zeros(40, np.float32)},
    ],
    ids=["bert.", "roberta.", "mpnet.", "no pooler", "gamma and beta", "with a language-model head"],
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
