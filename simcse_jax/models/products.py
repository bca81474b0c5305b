"""Matrix products whose factors are rounded and whose sums are not, forward and backward."""

import functools

import jax
import jax.numpy as jnp

DType = jnp.dtype | type
Pair = tuple[jax.Array, jax.Array]


def einsum(subscripts: str, x: jax.Array, y: jax.Array, dtype: DType) -> jax.Array:
    """`jnp.einsum` of two factors, which are rounded to `dtype`; it is summed in float32, and float32 is the result.

    The gradient that comes back is rounded to `dtype` too before its products with the factors. By JAX's own rule these
    would mix both types, which hardware does as slow float32 products.

    Args:
      subscripts: with an output; each letter in two of the three terms, so that the gradients are such products too.
      x, y: of any float type, which their gradients have too.
      dtype: float32 or bfloat16.
    """
    if dtype == jnp.float32:
        return jnp.einsum(subscripts, x.astype(dtype), y.astype(dtype))
    return _rounded(subscripts, jnp.dtype(dtype), (x.dtype, y.dtype), x, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _rounded(
    subscripts: str, dtype: jnp.dtype, types: tuple[jnp.dtype, jnp.dtype], x: jax.Array, y: jax.Array
) -> jax.Array:
    return jnp.einsum(subscripts, x.astype(dtype), y.astype(dtype), preferred_element_type=jnp.float32)


def _forward(
    subscripts: str, dtype: jnp.dtype, types: tuple[jnp.dtype, jnp.dtype], x: jax.Array, y: jax.Array
) -> tuple[jax.Array, Pair]:
    x, y = x.astype(dtype), y.astype(dtype)  # what is kept for the backward pass takes half the memory
    return _rounded(subscripts, dtype, types, x, y), (x, y)


def _backward(
    subscripts: str, dtype: jnp.dtype, types: tuple[jnp.dtype, jnp.dtype], factors: Pair, gradient: jax.Array
) -> Pair:
    x, y = factors
    inputs, output = subscripts.split("->")
    left, right = inputs.split(",")
    gradient = gradient.astype(dtype)
    dx = jnp.einsum(f"{output},{right}->{left}", gradient, y, preferred_element_type=jnp.float32)
    dy = jnp.einsum(f"{left},{output}->{right}", x, gradient, preferred_element_type=jnp.float32)
    return dx.astype(types[0]), dy.astype(types[1])


_rounded.defvjp(_forward, _backward)
