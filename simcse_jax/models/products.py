"""Matrix products with rounded factors and float32 sums, forward and backward."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Float32

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.platforms import for_platform

DType = jax.typing.DTypeLike
Factor = Float[AnyArray, "..."]
Values = Float32[Array, "*tokens F"]
Sums = Float32[Array, " F"]  # over tokens
Factors = tuple[Factor, Factor]
Named = tuple[str, Factor]  # subscripts and the array that they index
Output = TypeVar("Output")
GROUPS = 128  # of tokens, each with a sum of its own
_rounds: ContextVar[bool] = ContextVar("rounds_products", default=False)


@contextlib.contextmanager
def rounding(rounds: bool) -> Iterator[None]:
    """While a program is traced: whether its products of bfloat16 factors are written as bfloat16.

    They are still summed in float32, and what follows computes in float32. TPUs and GPUs round for free and then write
    and read half the bytes. CPUs do not, so nothing changes for them. The gradient of a float32 second factor, which is
    a parameter's, is never rounded. This belongs to a program, not to a product. `jax.jit` does not see it, unlike
    `jax.default_matmul_precision`: a function that was traced before stays as it is.
    """
    token = _rounds.set(rounds)
    try:
        yield
    finally:
        _rounds.reset(token)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Copied:
    """A parameter and a copy of it, rounded to the type of its products, which read the copy alone.

    The gradient is the parameter's, in its own type. A loop that computes products of a parameter would round it again
    in each of its turns; XLA takes that out of no loop.
    """

    copy: Any  # arrays, or what JAX puts in their places
    parameter: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both."""
        return self.parameter.shape

    def __getitem__(self, index: Any) -> "Copied":
        return self if index is ... else Copied(self.copy[index], self.parameter[index])


def einsum(subscripts: str, x: Factor, y: Factor | Copied, dtype: DType) -> Float32[Array, "..."]:
    """`jnp.einsum` of two factors, which are rounded to `dtype`; summed in float32, with a float32 result.

    The incoming gradient is also rounded to `dtype` before its products with the factors. JAX's own rule would mix both
    types in these products, which hardware computes as slow float32 products.

    Each letter of the subscripts is in two of the three terms, so that the gradients are such products too; these have
    the types of the factors. `dtype` is float32 or bfloat16, and then that of a copy.
    """
    y, copy = (y.parameter, y.copy) if isinstance(y, Copied) else (y, None)
    if dtype == jnp.float32:
        return jnp.einsum(subscripts, x.astype(dtype), y.astype(dtype))
    return _rounded(_Einsum(subscripts, jnp.dtype(dtype), (x.dtype, y.dtype), _rounds.get()), x, y, copy)


class _Einsum(NamedTuple):
    """The parts of a product that are fixed when a program is traced."""

    subscripts: str
    dtype: jnp.dtype  # of both factors in the product
    types: tuple[jnp.dtype, jnp.dtype]  # of the factors as they are given, and so of their gradients
    rounds: bool  # what is written


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(how: _Einsum, x: Factor, y: Factor, copy: Factor | None) -> Float32[Array, "..."]:
    x, y = _factors(how, x, y, copy)
    return _product(how.subscripts, x, y, how.rounds)


def _factors(how: _Einsum, x: Factor, y: Factor, copy: Factor | None) -> Factors:
    return x.astype(how.dtype), y.astype(how.dtype) if copy is None else copy


def _product(subscripts: str, x: Factor, y: Factor, rounds: bool) -> Float32[Array, "..."]:
    """Summed in float32, and rounded to the factors' type where `rounds` and the hardware does so for free."""
    exact = functools.partial(jnp.einsum, subscripts, preferred_element_type=jnp.float32)
    if not rounds:
        return exact(x, y)

    def rounded(x: Factor, y: Factor) -> Float32[Array, "..."]:
        return jnp.einsum(subscripts, x, y, preferred_element_type=x.dtype).astype(jnp.float32)

    return for_platform(x, y, cpu=exact, default=rounded)


def _forward(how: _Einsum, x: Factor, y: Factor, copy: Factor | None) -> tuple[Float32[Array, "..."], Factors]:
    x, y = _factors(how, x, y, copy)  # halves what the backward pass keeps
    return _rounded(how, x, y, None), (x, y)


def _backward(how: _Einsum, factors: Factors, gradient: Float[Array, "..."]) -> tuple[Factor, Factor, None]:
    x, y = factors
    inputs, output = how.subscripts.split("->")
    left, right = inputs.split(",")
    gradient = gradient.astype(how.dtype)
    dx = _sum_of_products((output, gradient), (right, y), left, how.rounds)
    dy = _sum_of_products((left, x), (output, gradient), right, how.rounds and how.types[1] == how.dtype)
    return dx.astype(how.types[0]), dy.astype(how.types[1]), None


def _sum_of_products(x: Named, y: Named, output: str, rounds: bool) -> Float32[Array, "..."]:
    """`einsum` of two named factors, in the only order in which XLA on CPUs multiplies bfloat16 directly.

    The output's first axes are the left factor's, and the left factor's last axes are summed over. In any other order
    the product is computed in float32, at half the speed; other hardware takes any order.
    """
    (left, a), (right, b) = sorted((x, y), key=lambda named: [letter not in named[0] for letter in output])
    order = sorted(left, key=lambda letter: (letter not in output, output.find(letter)))
    axes = tuple(left.index(letter) for letter in order)
    subscripts = f"{''.join(order)},{right}->{output}"
    if axes == tuple(range(a.ndim)):
        return _product(subscripts, a, b, rounds)

    def elsewhere(a: Factor, b: Factor) -> Float32[Array, "..."]:
        return _product(subscripts, jnp.transpose(a, axes), b, rounds)

    def in_order(a: Factor, b: Factor) -> Float32[Array, "..."]:
        return _product(subscripts, _in_memory(jnp.transpose(a, axes)), b, rounds)

    def swapped(a: Factor, b: Factor) -> Float32[Array, "..."]:
        return jnp.transpose(_in_memory(_product("mn,nk->mk", _in_memory(jnp.transpose(b)), a, rounds)))

    # A wide factor of a kernel's gradient is expensive to transpose: rather the other one, and the float32 result.
    is_wide = a.ndim == 2 and a.size > b.size + 2 * a.shape[1] * b.shape[1]
    return for_platform(a, b, cpu=swapped if is_wide else in_order, default=elsewhere)


def _in_memory(x: Factor) -> Factor:
    """`x` in memory in the order of its axes, so that the compiler folds no transpose into a product."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


_rounded.defvjp(_forward, _backward)


def rounded(dtype: DType) -> jnp.dtype | None:
    """The type that products of factors in `dtype` are written as, and on GPUs what is between them; None: float32."""
    return jnp.dtype(dtype) if _rounds.get() and dtype != jnp.float32 else None


def on_gpus(rounded: Callable[..., Output], exact: Callable[..., Output]) -> Callable[..., Output]:
    """`rounded` in a program for a GPU and `exact` in one for a CPU or TPU, where rounding spares no traffic."""
    return functools.partial(for_platform, cpu=exact, tpu=exact, default=rounded)


def written(x: Float[AnyArray, "*shape"], dtype: jnp.dtype | None) -> Float32[Array, "*shape"]:
    """`x`, written to memory as `dtype` on GPUs; elsewhere and with None `x` itself. Has no gradient of its own.

    Whatever reads it then reads half the bytes, and nothing of it is computed again. The barrier keeps the compiler
    from taking both conversions away, and from writing the float32 array as well.
    """
    return written_and_summed(x, dtype)[0]


def written_and_summed(x: Float[AnyArray, "*tokens F"], dtype: jnp.dtype | None) -> tuple[Values, Values]:
    """`written`, and the same values for sums over the tokens, which a GPU takes of what it writes, while it writes it.

    There is no barrier before the second. Its conversion to float32 is written with integers (of bfloat16, which is the
    first half of a float32), since the compiler would take an ordinary one away.
    """
    x = jnp.asarray(x)
    if dtype is None:
        return x, x

    def rounded(x: Values) -> tuple[Values, Values]:
        narrow = x.astype(dtype)
        bits = jax.lax.bitcast_convert_type(narrow, jnp.uint16).astype(jnp.uint32) << 16
        wide = jax.lax.bitcast_convert_type(bits, jnp.float32)
        return jax.lax.optimization_barrier(narrow).astype(jnp.float32), wide

    return on_gpus(rounded, lambda x: (x, x))(x)


def sum_over_tokens(x: Values) -> Sums:
    """The sum of all vectors, in two steps. With only one, a GPU would write what `written_and_summed` made again."""
    vectors = x.reshape(-1, x.shape[-1])
    if len(vectors) < GROUPS * GROUPS // 8:
        return jnp.sum(vectors, axis=0)
    vectors = jnp.pad(vectors, ((0, -len(vectors) % GROUPS), (0, 0)))
    # The barrier keeps the compiler from making one step of both.
    groups = jax.lax.optimization_barrier(jnp.sum(vectors.reshape(GROUPS, -1, x.shape[-1]), axis=1))
    return jnp.sum(groups, axis=0)


def shifted(y: Values, bias: Float32[AnyArray, " F"], dtype: DType) -> Values:
    """y + bias, for a product of factors in `dtype`.

    Where products are rounded, the gradient is written once, rounded, for the bias and for the product's factors.
    """
    return y + bias if (narrow := rounded(dtype)) is None else _shifted(narrow, y, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _shifted(dtype: jnp.dtype, y: Values, bias: Float32[AnyArray, " F"]) -> Values:
    return y + bias


def _shifted_backward(dtype: jnp.dtype, _: None, gradient: Values) -> tuple[Values, Sums]:
    def exact(gradient: Values) -> tuple[Values, Sums]:
        return gradient, jnp.sum(gradient, axis=tuple(range(gradient.ndim - 1)))

    def rounded(gradient: Values) -> tuple[Values, Sums]:
        gradient, summed = written_and_summed(gradient, dtype)
        return gradient, sum_over_tokens(summed)

    return on_gpus(rounded, exact)(gradient)


_shifted.defvjp(lambda dtype, y, bias: (y + bias, None), _shifted_backward)
