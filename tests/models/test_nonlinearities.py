import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from simcse_jax.models.config import ACTIVATIONS, GELU, GELU_TANH
from simcse_jax.models.nonlinearities import ACTIVATION_FUNCTIONS, gelu, layer_norm, softmax

pytestmark = pytest.mark.exact
RNG = np.random.default_rng(0)


def plain_layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / (jnp.square(centred).mean(-1, keepdims=True) + 1e-3) ** 0.5 * scale + bias


def test_every_activation_has_its_function_and_gelu_the_normal_distribution_s_gradient():
    x = np.concatenate([np.linspace(-12, 12, 2001), [-1e4, -0.0, 1e4]])
    value, gradient = jax.vmap(jax.value_and_grad(gelu))(jnp.float32(x))
    x = np.asarray(np.float32(x), np.float64)
    np.testing.assert_allclose(value, x * norm.cdf(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, norm.cdf(x) + x * norm.pdf(x), rtol=1e-6, atol=1e-6)
    assert tuple(ACTIVATION_FUNCTIONS) == ACTIVATIONS
    x = np.linspace(-4, 4, 33).astype(np.float32)
    tanh = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    expected = dict.fromkeys(GELU, x * norm.cdf(x)) | dict.fromkeys(GELU_TANH, tanh)
    expected |= dict.fromkeys(("silu", "swish"), x / (1 + np.exp(-x))) | {"relu": np.maximum(x, 0)}
    expected |= {"quick_gelu": x / (1 + np.exp(-1.702 * x))}
    for name, activation in ACTIVATION_FUNCTIONS.items():
        np.testing.assert_allclose(activation(jnp.asarray(x)), expected[name], atol=1e-6, err_msg=name)


def test_layer_norm_and_its_gradients_and_all_vectorized_over_runs():
    """Also where the mean is large, which cancels in a variance of squares."""
    x, target = 3 + RNG.normal(size=(2, 2, 3, 8)).astype(np.float32)
    scale, bias = RNG.normal(size=(2, 8)).astype(np.float32)

    def gradients(function):
        loss = jax.value_and_grad(lambda *args: jnp.sum(target * function(*args)), argnums=(0, 1, 2))
        return jax.jit(loss)(jnp.asarray(x), scale, bias)

    (value, found), (expected, by_hand) = gradients(lambda *args: layer_norm(*args, 1e-3)), gradients(plain_layer_norm)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for one, other in zip(found, by_hand, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-5)
    large = np.float32(1e3) + RNG.normal(size=(4, 512)).astype(np.float32)
    exact = np.asarray(large, np.float64)
    exact = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    np.testing.assert_allclose(layer_norm(jnp.asarray(large), jnp.ones(512), jnp.zeros(512), 1e-12), exact, atol=1e-3)
    x, scale = RNG.normal(size=(3, 4, 8)).astype(np.float32), RNG.normal(size=(3, 8)).astype(np.float32)

    def loss(x, scale):
        return jnp.sum(softmax(layer_norm(gelu(x), scale, scale, 1e-3)) ** 2)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    together = jax.jit(jax.vmap(gradient))(x, scale)
    for run in range(3):
        for found, expected in zip(together, gradient(x[run], scale[run]), strict=True):
            np.testing.assert_allclose(found[run], expected, atol=1e-6)


@pytest.mark.parametrize("tokens", [(6,), (40, 64)])
def test_a_rounded_layer_norm_is_near_the_exact_one_and_on_a_cpu_the_same(tokens, monkeypatch):
    """Within the rounding of bfloat16, 2⁻⁹; what is written is rounded."""
    x, target = RNG.normal(size=(2, *tokens, 64)).astype(np.float32)
    scale, bias = 1 + 0.1 * RNG.normal(size=(2, 64)).astype(np.float32)

    def gradients(dtype):
        def loss(x, scale, bias):
            y = layer_norm(x, scale, bias, 1e-12, dtype)
            return jnp.sum(target * y), y

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(jnp.asarray(x), scale, bias)

    exact, on_a_cpu = gradients(None), gradients(jnp.dtype(jnp.bfloat16))
    jax.tree.map(np.testing.assert_array_equal, on_a_cpu, exact)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, default, **others: default(*args))
    rounded = gradients(jnp.dtype(jnp.bfloat16))
    for found, expected in zip(jax.tree.leaves(rounded), jax.tree.leaves(exact), strict=True):
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert 1e-5 < error < 2**-7
    for written in (rounded[1], rounded[0][0]):
        np.testing.assert_array_equal(written, written.astype(jnp.bfloat16).astype(jnp.float32))


def test_softmax_and_its_gradient_are_exact_and_backward_passes_keep_no_more_than_one_array():
    x, target = RNG.normal(size=(2, 3, 5)).astype(np.float32)
    x[:, 3:] = np.finfo(np.float32).min
    value, gradient = jax.jit(jax.value_and_grad(lambda x: jnp.sum(target * softmax(x))))(jnp.asarray(x))
    expected = jax.jit(jax.value_and_grad(lambda x: jnp.sum(target * jax.nn.softmax(x))))(jnp.asarray(x))
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-7)
    assert not gradient[:, 3:].any()

    def kept(function, *args):
        return sum(np.size(leaf) for leaf in jax.tree.leaves(jax.vjp(function, *args)[1]))

    x = jnp.ones((16, 64))
    assert kept(gelu, x) == kept(softmax, x) == x.size
    assert kept(lambda x, scale, bias: layer_norm(x, scale, bias, 1e-12), x, x[0], x[0]) == x.size + 2 * 16 + 64
