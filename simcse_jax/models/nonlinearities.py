"""Activations, layer normalization and softmax; GELU, the norm and softmax have hand-written gradients.

With automatic gradients they keep up to three arrays for the backward pass instead of one, and a training step on a
CPU takes a tenth longer. Arguments are float32. The hand-written ones have no forward-mode derivative.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import GELU, GELU_TANH
from simcse_jax.models.products import on_gpus, sum_over_tokens, written, written_and_summed

Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]
Values = Float[AnyArray, "*tokens D"]
Output = Float[Array, "*tokens D"]
Each = Float[AnyArray, " D"]  # a number for each channel
Residuals = tuple[Values, Float[Array, "*tokens 1"], Float[Array, "*tokens 1"], Each]


@jax.custom_vjp
def gelu(x: Float[AnyArray, "*shape"]) -> Float[Array, "*shape"]:
    """x Φ(x), as 0.5 x (1 + erf(x/√2)): `jax.nn.gelu` uses the complementary error function, which costs more."""
    return jnp.multiply(0.5, x) * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


def _gelu_backward(x: Float[AnyArray, "*shape"], gradient: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"]]:
    """Φ(x) + x φ(x). erf is evaluated at -x, so that the compiler does not keep the forward pass's erf(x)."""
    cumulative = 0.5 - 0.5 * jax.lax.erf(x * -math.sqrt(0.5))
    density = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return (gradient * (cumulative + x * density),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def layer_norm(x: Values, scale: Each, bias: Each, epsilon: float, dtype: jnp.dtype | None = None) -> Output:
    """x̂ · scale + bias with x̂ = (x - mean) / √(variance + ε) of the last axis (Ba et al. 2016, "Layer normalization").

    The variance is that of the centred x: E[x²] - E[x]² suffers from cancellation. With a `dtype`, GPUs write
    x, the result and their gradients as that (see `products.written`).
    """
    return _layer_norm_forward(x, scale, bias, epsilon, dtype)[0]


def _layer_norm_forward(
    x: Values, scale: Each, bias: Each, epsilon: float, dtype: jnp.dtype | None
) -> tuple[Output, Residuals]:
    average = functools.partial(jnp.mean, axis=-1, keepdims=True)

    def exact(x: Values) -> tuple[Output, Residuals]:
        mean = average(x)
        inverse = jax.lax.rsqrt(average(jnp.square(x - mean)) + epsilon)
        return jnp.subtract(x, mean) * (inverse * scale) + bias, (x, mean, inverse, scale)

    def rounded(x: Values) -> tuple[Output, Residuals]:
        """E[x²] and E[x] are means of one pass over x. Its rounding to 8 bits changes more than their cancellation."""
        x = written(x, dtype)
        mean = average(x)
        inverse = jax.lax.rsqrt(jnp.maximum(average(jnp.square(x)) - jnp.square(mean), 0.0) + epsilon)
        return written(jnp.subtract(x, mean) * (inverse * scale) + bias, dtype), (x, mean, inverse, scale)

    return exact(x) if dtype is None else on_gpus(rounded, exact)(x)


def _layer_norm_backward(
    epsilon: float, dtype: jnp.dtype | None, kept: Residuals, gradient: Values
) -> tuple[Values, Each, Each]:
    """With g the gradient of x̂: (g - E[g] - x̂ E[g x̂]) / √(variance + ε)."""
    tokens = tuple(range(gradient.ndim - 1))

    def by_x(kept: Residuals, gradient: Values) -> tuple[Values, Values]:
        """The gradient of x, and g x̂."""
        x, mean, inverse, scale = kept
        normalized = (x - mean) * inverse
        product = gradient * normalized

        of_gradient, of_product = (jnp.mean(y * scale, axis=-1, keepdims=True) for y in (gradient, product))
        return inverse * (gradient * scale - of_gradient - normalized * of_product), product

    def exact(kept: Residuals, gradient: Values) -> tuple[Values, Each, Each]:
        gradient_of_x, product = by_x(kept, gradient)
        return gradient_of_x, jnp.sum(product, axis=tokens), jnp.sum(gradient, axis=tokens)

    def rounded(kept: Residuals, gradient: Values) -> tuple[Values, Each, Each]:
        """x is read again for the sums over tokens: otherwise GPUs write g x̂ as float32, for both of its sums."""
        gradient, summed = written_and_summed(gradient, dtype)
        x, mean, inverse, _ = kept
        product = summed * ((written(x, dtype) - mean) * inverse)
        gradient_of_x = written(by_x(kept, gradient)[0], dtype)
        return gradient_of_x, sum_over_tokens(product), sum_over_tokens(summed)

    return exact(kept, gradient) if dtype is None else on_gpus(rounded, exact)(kept, gradient)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


def rms_norm(x: Output, scale: Each, epsilon: float) -> Output:
    """x / √(E[x²] + ε) · scale over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467, equation 4)."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + epsilon) * scale


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(x: Float[AnyArray, "*shape"], dtype: jnp.dtype | None = None) -> Float[Array, "*shape"]:
    """exp(x) / Σ exp(x) over the last axis; rounded to `dtype` if there is one (see `products.written`)."""
    return written(jax.nn.softmax(x, axis=-1), dtype)


def _softmax_backward(dtype: jnp.dtype | None, probabilities: Values, gradient: Values) -> tuple[Values]:
    """p g - p Σ p g."""
    product = probabilities * gradient
    return (product - probabilities * jnp.sum(product, axis=-1, keepdims=True),)


softmax.defvjp(lambda x, dtype: (softmax(x, dtype),) * 2, _softmax_backward)


# By the names of `models.config.ACTIVATIONS`.
ACTIVATION_FUNCTIONS: dict[str, Activation] = {
    **dict.fromkeys(GELU, gelu),
    **dict.fromkeys(GELU_TANH, functools.partial(jax.nn.gelu, approximate=True)),
    "quick_gelu": lambda x: jnp.multiply(x, jax.nn.sigmoid(1.702 * x)),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
}
