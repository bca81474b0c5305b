import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS

from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.norm import Norm, normalized

pytestmark = pytest.mark.exact
CONFIG = dataclasses.replace(EncoderConfig.from_hugging_face(CONFIGS["bert"], "test"), layer_norm_eps=0.5)


def test_norms_by_numpy_with_a_bias_and_without_root_mean_squares_and_fresh_ones():
    generator = np.random.default_rng(0)
    x, scale, bias = generator.normal(size=(2, 5, 8)), generator.normal(size=8), generator.normal(size=8)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.5) * scale
    args = [jnp.asarray(each, jnp.float32) for each in (x, scale, bias)]
    np.testing.assert_allclose(normalized(*args, CONFIG), expected + bias, atol=1e-5)
    np.testing.assert_allclose(normalized(*args[:2], None, CONFIG), expected, atol=1e-5)
    expected = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 0.5)
    for offset in (0.0, 1.0):
        config = dataclasses.replace(CONFIG, rms_norm=True, norm_offset=offset, norm_bias=False)
        np.testing.assert_allclose(normalized(*args[:2], None, config), expected * (scale + offset), atol=1e-5)
        np.testing.assert_allclose(Norm(config, 8)(args[0]), expected, atol=1e-5)
    for has_bias in (True, False):
        norm = Norm(dataclasses.replace(CONFIG, norm_bias=has_bias), 2)
        assert (norm.bias is not None) == has_bias
        np.testing.assert_allclose(norm(jnp.array([[1.0, 3.0]])), [[-1 / np.sqrt(1.5), 1 / np.sqrt(1.5)]], rtol=1e-6)
