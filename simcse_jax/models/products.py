"""Matrix products with rounded factors and float32 sums, forward and backward."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Float32

from simcse_jax.models.arrays import AnyArray

DType = jnp.dtype | type
Factor = Float[AnyArray, "..."]
Pair = tuple[Factor, Factor]
Named = tuple[str, Factor]  # subscripts and the array that they index


def einsum(subscripts: str, x: Factor, y: Factor, dtype: DType) -> Float32[Array, "..."]:
    """`jnp.einsum` of two factors, which are rounded to `dtype`; summed in float32, with a float32 result.

    The incoming gradient is also rounded to `dtype` before its products with the factors. JAX's own rule would mix both
    types in these products, which hardware computes as slow float32 products.

    Args:
      subscripts: with an output; each letter in two of the three terms, so that the gradients are such products too.
      x, y: of any float type; their gradients have the same.
      dtype: float32 or bfloat16.
    """
    if dtype == jnp.float32:
        return jnp.einsum(subscripts, x.astype(dtype), y.astype(dtype))
    return _rounded(subscripts, jnp.dtype(dtype), (x.dtype, y.dtype), x, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _rounded(
    subscripts: str, dtype: jnp.dtype, types: tuple[jnp.dtype, jnp.dtype], x: Factor, y: Factor
) -> Float32[Array, "..."]:
    return jnp.einsum(subscripts, x.astype(dtype), y.astype(dtype), preferred_element_type=jnp.float32)


def _forward(
    subscripts: str, dtype: jnp.dtype, types: tuple[jnp.dtype, jnp.dtype], x: Factor, y: Factor
) -> tuple[Float32[Array, "..."], Pair]:
    x, y = x.astype(dtype), y.astype(dtype)  # halves the memory kept for the backward pass
    return _rounded(subscripts, dtype, types, x, y), (x, y)


def _backward(
    subscripts: str, dtype: jnp.dtype, types: tuple[jnp.dtype, jnp.dtype], factors: Pair, gradient: Float[Array, "..."]
) -> Pair:
    x, y = factors
    inputs, output = subscripts.split("->")
    left, right = inputs.split(",")
    gradient = gradient.astype(dtype)
    dx = _sum_of_products((output, gradient), (right, y), left)
    dy = _sum_of_products((left, x), (output, gradient), right)
    return dx.astype(types[0]), dy.astype(types[1])


def _sum_of_products(x: Named, y: Named, output: str) -> Float32[Array, "..."]:
    """`einsum` of two named factors, in the only order in which XLA on CPUs multiplies bfloat16 directly.

    The output's first axes are the left factor's, and the left factor's last axes are summed over. In any other order
    the product is computed in float32, at half the speed; other hardware takes any order.
    """
    (left, a), (right, b) = sorted((x, y), key=lambda named: [letter not in named[0] for letter in output])
    order = sorted(left, key=lambda letter: (letter not in output, output.find(letter)))
    axes = tuple(left.index(letter) for letter in order)
    if axes != tuple(range(a.ndim)):
        a = jax.lax.platform_dependent(a, cpu=functools.partial(_moved, axes), default=lambda a: a.transpose(axes))
    return jnp.einsum(f"{''.join(order)},{right}->{output}", a, b, preferred_element_type=jnp.float32)


def _moved(axes: tuple[int, ...], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Transposed in memory, so that the compiler does not fold the transpose into the product, in the slow order."""
    return with_layout_constraint(x.transpose(axes), Layout(tuple(range(x.ndim))))


_rounded.defvjp(_forward, _backward)
