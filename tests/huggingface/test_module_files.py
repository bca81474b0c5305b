import numpy as np
import pytest
from safetensors.numpy import save_file

from simcse_jax.errors import UserError
from simcse_jax.huggingface.module_files import Unsupported, read_tensors


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
