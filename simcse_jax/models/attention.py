"""Attention of queries to keys: which of these a query sees, softmax, dropout, and the sums of values.

A long text's attention is computed in blocks of queries, each against all of its keys, or, in a local layer, against
the window around the block. So memory grows with the length and not with its square: the backward pass computes a
block again (Rabe and Staats 2021, "Self-attention does not need O(n²) memory", arXiv:2112.05682). A row of scores is
whole in its block, so there is no running softmax, and blocks change nothing but the rounding of sums: a mask's
elements belong to their coordinates, whichever block draws them.

NVIDIA GPUs have cuDNN's kernels for a long text of which nothing is dropped: in bfloat16, with heads of at most 128
numbers, a multiple of 8. A program contains them only where JAX's plugin for CUDA is installed. A CPU takes one head
after the other.

Shapes: B sentences, T tokens, H heads, Q queries, K keys and d numbers in a head.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.errors import installed
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.dropout import Draws, Mask, drop
from simcse_jax.models.nonlinearities import softmax
from simcse_jax.models.platforms import for_platform
from simcse_jax.models.products import DType, einsum, rounded
from simcse_jax.models.rotary import Rotation

LONG = 512  # tokens; the attention of longer texts is computed in blocks
BLOCK = 128  # queries
CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
EVERYTHING = 1 << 30  # a window that leaves nothing out
RelativeBias = Float[Array, "*B H Q K"] | None  # added to the scores of attention
Heads = Float[Array, "B H _T d"]
Seen = Bool[Array, "_B Q K"] | None  # which keys each query sees; None: all
Shown = Int[Array, "B K"]  # 1 for a key and 0 for padding
Reach = tuple[int | None, int | None]  # the most positions to the keys before and after a query that it sees; None: any
MOST_OF_CUDNN = 128  # numbers of a head: what GPUs before Hopper take


def is_long(length: int) -> bool:
    """Whether attention of so many tokens is computed in blocks."""
    return length > LONG


class Near(NamedTuple):
    """The keys that a query sees: those that are at most `window` positions away, and, if `causal`, not after it."""

    queries: Int[Array, "_B Q"]  # positions
    keys: Int[Array, "_B K"]
    window: int
    in_order: bool  # whether positions count up, so that near keys are neighbours
    causal: bool = False

    @property
    def reach(self) -> Reach:
        """How far a query sees."""
        before = self.window if self.window < EVERYTHING else None
        return before, 0 if self.causal else before

    def seen(self) -> Bool[Array, "_B Q K"]:
        """Which keys each query sees."""
        return self.at(self.queries[:, :, None] - self.keys[:, None])

    def at(self, distance: Int[Array, "*shape"]) -> Bool[Array, "*shape"]:
        """Whether a query sees a key at such a distance, the query's position minus the key's."""
        near = jnp.abs(distance) <= self.window
        return near & (distance >= 0) if self.causal else near


class Order(NamedTuple):
    """The order of the tokens as a layer's attention uses it; None for what it does not use."""

    relative_bias: RelativeBias = None
    rotation: Rotation | None = None
    near: Near | None = None  # None: a query sees all keys

    def first(self) -> "Order":
        """The same for the queries of each sentence's first token alone."""
        bias, by, near = self
        return Order(
            None if bias is None else bias[..., :1, :],
            by and by.first(),
            near and near._replace(queries=near.queries[:, :1]),
        )


NO_ORDER = Order()


def attend(
    query: Heads,
    key: Heads,
    value: Heads,
    attention_mask: Int[AnyArray, "B K"],
    order: Order,
    dropout: Mask | Draws | None,
    dtype: DType,
    *,
    kernels: bool = False,
) -> Float[Array, "B H Q d"]:
    """Sums of the values weighted by attention, with products of factors in `dtype`.

    `kernels`: whether the hardware's own may compute those of a long text.
    """
    if is_long(query.shape[2]) and order.relative_bias is None and not isinstance(dropout, Mask):
        near, mask = order.near, jnp.asarray(attention_mask)
        if dropout is not None:
            return in_blocks(query, key, value, mask, near, dropout, dtype)
        ways = {"cpu": functools.partial(head_by_head, near=near, dtype=dtype)}
        if kernels and fits_cudnn(near, query.shape[-1], dtype):
            ways["cuda"] = functools.partial(cudnn, reach=(None, None) if near is None else near.reach)
        blocks = functools.partial(in_blocks, near=near, dropout=None, dtype=dtype)
        return for_platform(query, key, value, mask, default=blocks, **ways)
    if isinstance(dropout, Draws):
        dropout = dropout.mask((query.shape[1], query.shape[2], key.shape[2]))
    seen = None if order.near is None else order.near.seen()
    return whole(query, key, value, jnp.asarray(attention_mask), order.relative_bias, seen, dropout, dtype)


def whole(
    query: Heads, key: Heads, value: Heads, mask: Shown, bias: RelativeBias, near: Seen, kept: Mask | None, dtype: DType
) -> Float[Array, "B H Q d"]:
    """All queries against all keys at once."""
    scores = einsum("bhqd,bhkd->bhqk", query, key, dtype)
    scores *= query.shape[-1] ** -0.5
    if bias is not None:
        scores += bias
    seen = mask[:, None, None, :] > 0
    if near is not None:
        seen &= near[:, None]
    scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    probabilities = drop(softmax(scores, rounded(dtype)), kept)
    return einsum("bhqk,bhkd->bhqd", probabilities, value, dtype).astype(dtype)


def in_blocks(
    query: Heads, key: Heads, value: Heads, mask: Shown, near: Near | None, dropout: Draws | None, dtype: DType
) -> Float[Array, "B H Q d"]:
    """`whole` for one block of queries after the other, each of which is computed again in the backward pass."""
    length = query.shape[2]
    blocks = -(-length // BLOCK)
    key, value = key.astype(jnp.float32), value.astype(jnp.float32)  # their gradients are sums over the blocks
    starts = jnp.arange(blocks) * BLOCK
    window = near.window if near is not None and near.in_order and near.window <= BLOCK else None
    close: Seen = None
    if near is not None and window is not None:
        places = jnp.arange(BLOCK + 2 * window) - window  # of the keys, as seen from a block's first query
        close = near.at(jnp.arange(BLOCK)[:, None] - places)[None]

    def of_block(block: tuple[Array, ...]) -> Float[Array, "B H Q d"]:
        start, queries, *block_inputs = block
        keys, values, shown = (key, value, mask) if window is None else block_inputs
        seen = close if window is not None or near is None else near._replace(queries=block_inputs[0]).seen()
        first = jnp.zeros_like(start) if window is None else start - window
        kept = dropout.mask((query.shape[1], BLOCK, keys.shape[2]), (start, first)) if dropout is not None else None
        return whole(queries, keys, values, shown, None, seen, kept, dtype)

    if window is not None:
        around = functools.partial(with_neighbours, blocks=blocks, window=window)
        inputs = [around(key, 2), around(value, 2), around(mask, 1)]
    else:
        inputs = [] if near is None else [in_parts(near.queries, 1, blocks)]
    stacked = (starts, in_parts(query, 2, blocks), *inputs)
    context = jax.lax.map(jax.checkpoint(of_block, prevent_cse=False), stacked)
    return jnp.moveaxis(context, 0, 2).reshape(*query.shape[:2], -1, query.shape[3])[:, :, :length]


def head_by_head(query: Heads, key: Heads, value: Heads, mask: Shown, near: Near | None, dtype: DType) -> Heads:
    """`in_blocks` for one head of one sentence after the other, without dropout; the same numbers.

    A block's scores then fit into a CPU's cache: at 8,192 tokens they are 4 MiB in place of 48 for BERT-base's heads.
    """
    places = () if near is None else tuple(jnp.broadcast_to(x, mask.shape) for x in (near.queries, near.keys))

    def of_sentence(sentence: tuple[Array, ...]) -> Float[Array, "H Q d"]:
        query, key, value, *rest = sentence
        mask, *seen = (x[None] for x in rest)
        here = None if near is None else near._replace(queries=seen[0], keys=seen[1])

        def of_head(head: tuple[Array, ...]) -> Float[Array, "Q d"]:
            query, key, value = (x[None, None] for x in head)
            return in_blocks(query, key, value, mask, here, None, dtype)[0, 0]

        return jax.lax.map(of_head, (query, key, value))

    return jax.lax.map(of_sentence, (query, key, value, mask, *places))


def in_parts(x: Array, axis: int, blocks: int) -> Array:
    """(blocks, …, BLOCK, …): an axis in blocks, with zeros at the end."""
    padding = [(0, blocks * BLOCK - x.shape[axis] if number == axis else 0) for number in range(x.ndim)]
    parts = jnp.pad(x, padding).reshape(*x.shape[:axis], blocks, BLOCK, *x.shape[axis + 1 :])
    return jnp.moveaxis(parts, axis, 0)


def with_neighbours(x: Array, axis: int, *, blocks: int, window: int) -> Array:
    """(blocks, …, window + BLOCK + window, …): each block between its neighbours' next elements, zeros at the ends."""
    parts = in_parts(x, axis, blocks)
    axis += 1
    nothing = jnp.zeros_like(parts[:1])
    before = jax.lax.slice_in_dim(jnp.concatenate([nothing, parts[:-1]]), BLOCK - window, BLOCK, axis=axis)
    after = jax.lax.slice_in_dim(jnp.concatenate([parts[1:], nothing]), 0, window, axis=axis)
    return jnp.concatenate([before, parts, after], axis)


def fits_cudnn(near: Near | None, head_size: int, dtype: DType) -> bool:
    """Whether cuDNN computes such attention, and programs can be compiled for its GPUs."""
    fits = dtype == jnp.bfloat16 and head_size <= MOST_OF_CUDNN and head_size % 8 == 0
    return fits and (near is None or near.in_order) and any(map(installed, CUDA_PLUGINS))


def cudnn(query: Heads, key: Heads, value: Heads, mask: Shown, reach: Reach) -> Heads:
    """By cuDNN, in bfloat16. It takes lengths and no masks: a text with padding in its midst gives NaN.

    cuDNN's windows end at the query's own place, and JAX passes it no others. So queries that see w keys after them go
    w places further back: from place i + w, the 2 w + 1 keys up to there are those of the places i − w to i + w.
    """
    query, key, value = (x.astype(jnp.bfloat16).swapaxes(1, 2) for x in (query, key, value))
    seen = mask > 0
    lengths = jnp.sum(seen, axis=1, dtype=jnp.int32)
    late = 0
    local: dict[str, Any] = {}
    before, after = (most if most is not None and most < query.shape[1] else None for most in reach)  # if it matters
    if after is not None:
        late = after
        local = {"query_seq_lengths": lengths + late, "is_causal": True}
        if before is not None:
            local["local_window_size"] = (before + late, 0)
        query = jnp.pad(query, ((0, 0), (late, 0), (0, 0), (0, 0)))
        key, value = (jnp.pad(x, ((0, 0), (0, late), (0, 0), (0, 0))) for x in (key, value))
    context = jax.nn.dot_product_attention(
        query, key, value, key_value_seq_lengths=lengths, implementation="cudnn", **local
    )
    on_the_right = jnp.all(seen[:, 1:] <= seen[:, :-1], axis=1)
    return jnp.where(on_the_right[:, None, None, None], context[:, late:].swapaxes(1, 2), jnp.nan)
