import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.models.config import Cut, Dense, LayerNorm, Normalize, output_size
from simcse_jax.models.modules import ACTIVATIONS, apply, shapes

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
KERNEL = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
BIAS = np.arange(5, dtype=np.float32)


def test_modules_by_hand_with_residuals_and_zeros():
    weights = [{}, {"kernel": KERNEL, "bias": BIAS}, {"scale": BIAS, "bias": BIAS}]
    modules = (Normalize(), Dense("ReLU", 5, inputs=4), LayerNorm(inputs=5), Cut(2))
    x = np.maximum(X / np.linalg.norm(X, axis=1, keepdims=True) @ KERNEL + BIAS, 0)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * BIAS + BIAS
    np.testing.assert_allclose(apply(modules, weights, jnp.array(X)), x[:, :2], rtol=1e-5, atol=1e-6)
    assert output_size(modules, 4) == 2 and output_size((Cut(9),), 4) == 4 and output_size((), 4) == 4
    weights = [{"kernel": KERNEL, "bias": BIAS, "residual": KERNEL[::-1]}]
    dense = Dense("Tanh", 5, residual=True, inputs=4)
    found = apply((dense,), weights, jnp.array(X))
    assert {name: value.shape for name, value in weights[0].items()} == shapes(dense)
    np.testing.assert_allclose(found, np.tanh(X @ KERNEL + BIAS) + X @ KERNEL[::-1], rtol=1e-5)
    square = [{"kernel": KERNEL[:, :4]}]
    found = apply((Dense("Identity", 4, residual=True, inputs=4, bias=False),), square, jnp.array(X))
    np.testing.assert_allclose(found, X @ KERNEL[:, :4] + X, rtol=1e-5)
    assert all(jax.eval_shape(activation, X).shape == X.shape for activation in ACTIVATIONS.values())
    assert not np.asarray(apply((Normalize(),), [], jnp.zeros((2, 4)))).any()
