import subprocess
import sys

import numpy as np
import pytest
from conftest import sentences

from simcse_jax import SimCSE
from simcse_jax.errors import UserError


def test_encode_keeps_the_order_whatever_the_batches(tiny_folder):
    texts = [*sentences(9), "", "the cat " * 30, *sentences(3)]
    large, small = SimCSE(str(tiny_folder)), SimCSE(str(tiny_folder), batch_size=4)
    together = large.encode(texts)
    assert together.shape == (len(texts), 32) and together.dtype == np.float32
    np.testing.assert_allclose(small.encode(texts), together, atol=1e-5)
    np.testing.assert_allclose(large.encode(texts[3]), together[3], atol=1e-5)
    np.testing.assert_array_equal(together[0], together[11])  # the same sentence twice
    assert large.encode([]).shape[0] == 0


def test_an_unknown_pooler_is_refused(tiny_folder):
    with pytest.raises(UserError, match="'min' is not one of"):
        SimCSE(str(tiny_folder), pooler="min")


def test_the_package_is_light_to_import():
    heavy = ("jax", "transformers", "datasets", "tensorflow_datasets", "torch", "tensorflow")
    code = f"import sys, simcse_jax; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
