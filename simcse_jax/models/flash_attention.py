"""Attention of long texts on TPUs, as kernels that keep no scores: a running softmax over blocks of keys.

Dao 2023, "FlashAttention-2: Faster attention with better parallelism and work partitioning" (arXiv:2307.08691),
algorithms 1 and 2. Queries meet the blocks of the keys that they see alone: those within a local layer's window, and
for decoders those before their own. JAX's own kernels for TPUs (splash
attention) say nothing of the devices over which their results vary, and so cannot be a part of a step, whose
`shard_map` checks that.

An outer block of queries stays on the chip while inner blocks of keys pass by, and is written after the last one. For
the gradients it is an outer block of keys, and inner ones of queries; a head's gradient of all queries stays there too.
Shapes: B sentences, H heads, T tokens, d numbers in a head, O tokens of an outer block and I of an inner one.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Float32, Int

from simcse_jax.models.arrays import CONTEXT

Ref = Any  # a part of an array, on the chip
Heads = Float[Array, "B H T d"]
Residuals = tuple[Heads, Heads, Heads, Int[Array, "B T"], Heads, Float32[Array, "B H 1 T"]]

BLOCKS = (512, 256, 128)  # tokens of an outer block, the best first
LANES = 128  # of a register: tokens of the smallest block
LEAST, MOST = -1e30, 1e30  # in the place of infinity, whose differences are NaN
# The axes of two matrices that a product sums over.
ROWS_BY_COLUMNS, BY_ROWS, BY_COLUMNS = ((1,), (0,)), ((1,), (1,)), ((0,), (0,))


class Walk(NamedTuple):
    """The inner blocks that each outer one meets."""

    length: int  # T, a multiple of both
    outer: int  # tokens of a block
    inner: int
    before: int | None  # how far before its own place an outer token sees inner ones; None: to the start
    after: int | None  # and how far after it; None: to the end

    @property
    def mirrored(self) -> "Walk":
        """The same pairs, with keys in the outer blocks and queries in the inner ones, or the other way round."""
        return self._replace(before=self.after, after=self.before)

    @property
    def blocks(self) -> int:
        """The inner blocks of the text."""
        return self.length // self.inner

    @property
    def near(self) -> int:
        """The inner blocks that an outer one sees, those before the text's start and after its end among them."""
        if self.before is None or self.after is None:
            return self.blocks
        return self.outer // self.inner + -(-self.before // self.inner) + -(-self.after // self.inner)

    @property
    def is_local(self) -> bool:
        """Whether outer blocks are handed some of the inner blocks only."""
        return self.near < self.blocks

    @property
    def grid(self) -> tuple[int, int]:
        """How many outer blocks there are, and how many inner ones each of them is handed."""
        return self.length // self.outer, self.near if self.is_local else self.blocks

    @property
    def share(self) -> float:
        """The share of what outer blocks are handed that they meet, about."""
        to_one_side = (self.before is None) != (self.after is None)
        return 0.5 + 0.5 / self.grid[0] if to_one_side else 1.0

    def first(self, i: Any) -> Any:
        """The first inner block that the outer block i sees; below 0 where the text does not reach."""
        return 0 if self.before is None else i * (self.outer // self.inner) + -self.before // self.inner

    def last(self, i: Any) -> Any:
        """The last inner block that the outer block i sees; above all blocks where the text does not reach."""
        own_block = (i + 1) * (self.outer // self.inner) - 1
        return self.blocks - 1 if self.after is None else own_block + -(-self.after // self.inner)

    def handed(self, i: Any, j: Any) -> Any:
        """The number of the j-th inner block that the outer block i is handed; there may be none with this number."""
        return self.first(i) + j if self.is_local else j

    def met(self, i: Any) -> tuple[Any, Any]:
        """The first and the last inner block that the outer block i sees and the text has."""
        return jnp.maximum(self.first(i), 0), jnp.minimum(self.last(i), self.blocks - 1)

    def meets(self, i: Any, block: Any) -> Any:
        """Whether the outer block i sees an inner one of this number, and the text has it."""
        least, most = self.met(i)
        return (block >= least) & (block <= most)

    def read(self, i: Any, j: Any) -> Any:
        """The number of the block to read as the j-th: one that is met, so that none is read for nothing."""
        return jnp.clip(self.handed(i, j), *self.met(i))

    def seen(self, shown: Array, i: Any, block: Any) -> Array:
        """(O, I): for which tokens of an outer and an inner block the key is `shown` and within reach."""
        shown = jnp.broadcast_to(shown, (self.outer, self.inner))
        if self.before is self.after is None:
            return shown
        first, second = (jax.lax.broadcasted_iota(jnp.int32, shown.shape, axis) for axis in (0, 1))
        distance = first + i * self.outer - second - block * self.inner
        if self.before is not None:
            shown &= distance <= self.before
        return shown if self.after is None else shown & (-distance <= self.after)


class Kernel(NamedTuple):
    """The properties that both kernels share."""

    walk: Walk
    precision: jax.lax.Precision  # of the products
    scale: float  # of the scores

    def product(self, x: Array, y: Array, axes: tuple[tuple[int], tuple[int]] = ROWS_BY_COLUMNS) -> Array:
        """The product of two matrices, summed in float32."""
        return jax.lax.dot_general(x, y, (axes, ((), ())), precision=self.precision, preferred_element_type=jnp.float32)

    def for_each_met(
        self, begin: Callable[[], None], meet: Callable[[Any, Any], None], end: Callable[[], None]
    ) -> None:
        """begin(), meet(outer block, inner block) for each inner block, end()."""
        i, j = pl.program_id(2), pl.program_id(3)
        block = self.walk.handed(i, j)
        pl.when(j == 0)(begin)
        pl.when(self.walk.meets(i, block))(lambda: meet(i, block))
        pl.when(j == self.walk.grid[1] - 1)(end)


def flash_attention(
    query: Heads,
    key: Heads,
    value: Heads,
    attention_mask: Int[Array, "B T"],
    before: int | None = None,
    after: int | None = None,
) -> Heads:
    """softmax(q kᵀ / √d) v over the keys that the mask has and that are within reach.

    For TPUs. The factors of products have the type of the arguments, bfloat16 or float32; sums are float32. Float32
    products are as exact as `jax.default_matmul_precision` asks, with three passes (`high`) as exact as with six. A
    query that sees no key gets zeros.

    Args:
      query, key, value: of one type.
      attention_mask: 1 for a token and 0 for padding, anywhere.
      before, after: the most positions from a query to the keys before and after it; None: any.
    """
    length = query.shape[2]
    outer = min(BLOCKS, key=lambda size: -(-length // size) * size)
    missing = -length % outer
    inner = LANES if before is not None and after is not None else outer
    walk = Walk(length + missing, outer, inner, before, after)
    asked = cast(Any, jax.config).jax_default_matmul_precision  # JAX adds it when imported
    exact = query.dtype == jnp.float32 and asked not in (None, "default", "fastest", "bfloat16")
    precision = jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT
    kernel = Kernel(walk, precision, query.shape[-1] ** -0.5)
    longer = [jnp.pad(x, ((0, 0), (0, 0), (0, missing), (0, 0))) for x in (query, key, value)]
    context = _attention(kernel, *longer, jnp.pad(attention_mask, ((0, 0), (0, missing))))
    return context[:, :, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(kernel: Kernel, query: Heads, key: Heads, value: Heads, mask: Int[Array, "B T"]) -> Heads:
    return _forward(kernel, query, key, value, mask)[0]


def _forward(
    kernel: Kernel, query: Heads, key: Heads, value: Heads, mask: Int[Array, "B T"]
) -> tuple[Heads, Residuals]:
    context, total = _call(
        functools.partial(_sums_of_values, kernel),
        kernel.walk,
        inputs={"mask": mask[:, None], "query": query, "key": key, "value": value},
        inner=("mask", "key", "value"),
        outputs=(query, jax.eval_shape(lambda x: x[..., 0][:, :, None].astype(jnp.float32), query)),  # (B, H, 1, T)
        scratch=(LANES, LANES, query.shape[-1]),
        products=2,
    )
    # Kept, where a layer is computed again: otherwise this kernel would run twice.
    context, total = checkpoint_name(context, CONTEXT), checkpoint_name(total, CONTEXT)
    return context, (query, key, value, mask, context, total)


def _backward(kernel: Kernel, kept: Residuals, gradient: Heads) -> tuple[Heads, Heads, Heads, None]:
    query, key, value, mask, context, total = kept
    weighted = jnp.sum(gradient.astype(jnp.float32) * context.astype(jnp.float32), axis=-1)[:, :, None]
    inputs = {"mask": mask[:, None], "query": query, "key": key, "value": value}
    kernel = kernel._replace(walk=kernel.walk.mirrored)
    of_key, of_value, of_query = _call(
        functools.partial(_gradients, kernel),
        kernel.walk,
        inputs=inputs | {"gradient": gradient, "total": total, "weighted": weighted},
        inner=("query", "gradient", "total", "weighted"),
        outputs=(key, value),
        whole=(jax.eval_shape(lambda x: x.astype(jnp.float32), query),),
        scratch=(LANES, key.shape[-1], value.shape[-1]),
        products=5,
    )
    return of_query.astype(query.dtype), of_key, of_value, None


_attention.defvjp(_forward, _backward)


def _sums_of_values(
    kernel: Kernel, mask: Ref, query: Ref, key: Ref, value: Ref, context: Ref, total: Ref, *kept: Ref
) -> None:
    """Each query's context, and the logarithm of the sum of its exponentials (`MOST` where it sees no key).

    `kept` from one inner block to the next are each query's largest score so far, sum of exponentials, and sums of
    values.
    """
    largest, weights, sums = kept

    def begin() -> None:
        largest[...] = jnp.full_like(largest, LEAST)
        weights[...] = jnp.zeros_like(weights)
        sums[...] = jnp.zeros_like(sums)

    def meet(i: Any, block: Any) -> None:
        seen = kernel.walk.seen(mask[...] > 0, i, block)
        scores = jnp.where(seen, kernel.product(query[...], key[...], BY_ROWS) * kernel.scale, LEAST)
        before = largest[:, :1]
        now = jnp.maximum(before, jnp.max(scores, axis=1, keepdims=True))
        exponentials = jnp.where(seen, jnp.exp(scores - now), 0.0)
        shrunk = jnp.exp(before - now)
        weights[...] = weights[...] * shrunk + jnp.sum(exponentials, axis=1, keepdims=True)
        sums[...] = sums[...] * shrunk + kernel.product(exponentials.astype(value.dtype), value[...])
        largest[...] = jnp.broadcast_to(now, largest.shape)

    def end() -> None:
        has_keys = weights[...] > 0
        divisor = jnp.where(has_keys, weights[...], 1.0)
        context[...] = (sums[...] / divisor[:, :1]).astype(context.dtype)
        total[...] = jnp.where(has_keys, largest[...] + jnp.log(divisor), MOST).T[:1]

    kernel.for_each_met(begin, meet, end)


def _gradients(kernel: Kernel, mask: Ref, *refs: Ref) -> None:
    """The gradients of an outer block of keys and values, and what they add to those of all queries.

    Matrices are (keys, queries). `shown` is the mask as a column.
    """
    query, key, value, gradient, total, weighted, of_key, of_value, of_query, shown, key_sums, value_sums = refs
    is_first = pl.program_id(2) == 0  # of the outer blocks

    def begin() -> None:
        shown[...] = jnp.broadcast_to(mask[...].astype(jnp.float32), (LANES, mask.shape[1])).T
        key_sums[...] = jnp.zeros_like(key_sums)
        value_sums[...] = jnp.zeros_like(value_sums)
        pl.when(is_first)(begin_head)

    def begin_head() -> None:
        of_query[...] = jnp.zeros_like(of_query)

    def meet(i: Any, block: Any) -> None:
        scores = kernel.product(key[...], query[...], BY_ROWS) * kernel.scale
        seen = kernel.walk.seen(shown[:, :1] > 0, i, block)
        probabilities = jnp.where(seen, jnp.exp(scores - total[...]), 0.0)
        value_sums[...] += kernel.product(probabilities.astype(gradient.dtype), gradient[...])
        of_probabilities = kernel.product(value[...], gradient[...], BY_ROWS)
        of_scores = probabilities * (of_probabilities - weighted[...]) * kernel.scale
        key_sums[...] += kernel.product(of_scores.astype(query.dtype), query[...])
        rows = pl.ds(pl.multiple_of(block * kernel.walk.inner, kernel.walk.inner), kernel.walk.inner)
        of_query[rows] += kernel.product(of_scores.astype(key.dtype), key[...], BY_COLUMNS)

    def end() -> None:
        of_key[...] = key_sums[...].astype(of_key.dtype)
        of_value[...] = value_sums[...].astype(of_value.dtype)

    kernel.for_each_met(begin, meet, end)


def _call(
    body: Callable[..., None],
    walk: Walk,
    *,
    inputs: dict[str, Array],
    inner: tuple[str, ...],
    outputs: tuple[Any, ...],
    whole: tuple[Any, ...] = (),
    scratch: tuple[int, ...],
    products: int,
) -> tuple[Array, ...]:
    """Runs a kernel for all pairs of blocks.

    Args:
      inputs: the arrays that it reads, by name: (B, H, T, d), or with tokens last (B, H, 1, T) or (B, 1, T).
      inner: the names of those of which it reads inner blocks, and of the others outer ones.
      outputs: arrays, or their shapes, like which it writes outer blocks.
      whole: the same, of which it has a head's whole array on the chip until all pairs are done.
      scratch: the widths of the float32 matrices of O rows that it keeps.
      products: the number of products (O, d) by (d, I), or of as many FLOPs, for a pair of blocks.
    """
    batch, heads, length, size = inputs["query"].shape
    outer_blocks, met = walk.grid

    def spec(like: Any, tokens: int, place: Callable[[Any, Any], Any]) -> pl.BlockSpec:
        tokens_last, before = like.shape[-2] == 1, len(like.shape) - 2

        def index(b: Any, h: Any, i: Any, j: Any) -> tuple[Any, ...]:
            return (*(b, h)[:before], *((0, place(i, j)) if tokens_last else (place(i, j), 0)))

        return pl.BlockSpec((*[None] * before, *((1, tokens) if tokens_last else (tokens, size))), index)

    by_outer = functools.partial(spec, tokens=walk.outer, place=lambda i, j: i)
    by_inner = functools.partial(spec, tokens=walk.inner, place=walk.read)

    def bytes_of(like: Any) -> int:
        return int(batch * heads * length * (1 if like.shape[-2] == 1 else size) * like.dtype.itemsize)

    pairs = int(batch * heads * outer_blocks * met * walk.outer * walk.inner * walk.share)
    again = walk.share * met * walk.inner / walk.outer  # times that an array is read by inner blocks
    read = sum(bytes_of(x) * (again if name in inner else 1) for name, x in inputs.items())
    moved = int(read + sum(map(bytes_of, (*outputs, *whole))))
    call = pl.pallas_call(
        body,
        grid=(batch, heads, outer_blocks, met),
        in_specs=[(by_inner if name in inner else by_outer)(x) for name, x in inputs.items()],
        out_specs=[*map(by_outer, outputs), *(spec(x, length, lambda i, j: 0) for x in whole)],
        out_shape=[jax.eval_shape(lambda x: x, x) for x in (*outputs, *whole)],
        scratch_shapes=[pltpu.VMEM((walk.outer, width), jnp.float32) for width in scratch],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary" if whole else "parallel", "arbitrary")
        ),
        cost_estimate=pl.CostEstimate(flops=2 * products * pairs * size, transcendentals=pairs, bytes_accessed=moved),
    )
    return tuple(call(*inputs.values()))
