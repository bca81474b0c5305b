import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.encoding.quantization import Quantization, ranges_of
from simcse_jax.index.decoding import decoded, decoding_of

ROWS = np.random.default_rng(0).normal(size=(40, 21)).astype(np.float32)
ROWS[:, 3] = 0.5


@pytest.mark.parametrize("precision", ["int8", "ubinary"])
def test_devices_decode_as_the_host_does(precision):
    kind = Quantization(precision, 21, ranges_of(ROWS) if precision == "int8" else None)
    codes = kind.encode(ROWS)
    found = decoded(jnp.asarray(codes), 21, decoding_of(kind))
    np.testing.assert_allclose(found, kind.decode(codes), rtol=1e-6, atol=1e-6)


def test_numbers_stay_as_they_are():
    found = decoded(jnp.asarray(ROWS, jnp.bfloat16), 21, decoding_of(None))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, jnp.asarray(ROWS, jnp.bfloat16).astype(jnp.float32))
