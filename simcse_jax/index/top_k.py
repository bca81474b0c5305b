"""The k rows of a matrix nearest to each query: scores and a running top k, block by block.

A block's rows are split over the devices of all processes. Each device keeps the best k of its own rows; at the end
these are gathered and merged. Only one block's scores exist at a time. Blocks have few shapes, so few steps are
compiled however many rows there are.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, ArrayLike, Float, Float32, Int, Int32, Int64, Shaped

from simcse_jax.devices.mesh import AXIS, place, replicate, replicated_sharding, split_over_examples
from simcse_jax.models.arrays import AnyArray
from simcse_jax.vectors.quantization import SCALAR, Quantization
from simcse_jax.vectors.similarity import scores as similarity_scores

MAX_QUERIES = 128  # scored together; fewer are padded to a power of two
WHOLE = 128  # if a device's part must be padded, to a multiple of this


Decoding = tuple[Float32[AnyArray, " D"], Float32[AnyArray, " D"]]  # of an element of bytes: scale · code + shift


def decoding_of(quantization: Quantization | None) -> Decoding | None:
    """The `Decoding` of rows of bytes; None for others."""
    return None if quantization is None or quantization.precision not in SCALAR else quantization.affine()


def decoded(rows: Shaped[Array, "R C"], dimension: int, decoding: Decoding | None) -> Float32[Array, "R {dimension}"]:
    """As `Quantization.decode`, on devices."""
    if decoding is not None:
        return rows.astype(jnp.float32) * decoding[0] + decoding[1]
    if rows.dtype != jnp.uint8:
        return rows.astype(jnp.float32)
    bits = (rows[:, :, None] >> np.arange(7, -1, -1, dtype=np.uint8)) & 1
    signs = bits.reshape(len(rows), -1)[:, :dimension].astype(jnp.float32) * 2 - 1
    return signs * np.float32(1 / math.sqrt(dimension))


@dataclasses.dataclass(frozen=True)
class Block:
    """Some rows of the matrix."""

    rows: Shaped[
        Array | np.ndarray, "R C"
    ]  # stored in any type: `decoding` makes (R, D) of them; NumPy's are sent to the devices when their turn comes
    first: int  # the number of its first row; unbounded, being Python's
    count: int  # the number of its rows; the others are padding


class Best(NamedTuple):
    """The best rows so far of Q queries, best first; of equal ones the lower row first.

    JAX's integers have 32 bits by default, so a row is given by its block's number and its place there.
    """

    scores: Float32[AnyArray, "... Q k"]  # -inf where there are fewer than k
    blocks: Int32[AnyArray, "... Q k"]
    places: Int32[AnyArray, "... Q k"]


def on_devices(rows: Shaped[np.ndarray, "R C"], mesh: Mesh) -> Shaped[Array, "P C"]:
    """Rows split over the devices of all processes, padded with zeros if necessary.

    Padding is to a multiple of `WHOLE`, because parts of odd sizes are summed in another order at their ends, which
    would give equal rows different scores.
    """
    whole = len(rows)
    if whole % mesh.size:
        whole = -(-whole // (WHOLE * mesh.size)) * WHOLE * mesh.size

    def read(part: slice) -> np.ndarray:
        shard = rows[part]
        missing = len(range(*part.indices(whole))) - len(shard)
        return np.pad(shard, ((0, missing), (0, 0))) if missing else shard

    return place(read, whole, split_over_examples(mesh))


def top_k(
    queries: Float[np.ndarray, "Q D"],
    blocks: Iterable[Block],
    k: int,
    mesh: Mesh,
    recall_target: float | None = None,
    similarity: str = "dot",
    decoding: Decoding | None = None,
) -> tuple[Float32[np.ndarray, "Q {k}"], Int64[np.ndarray, "Q {k}"]]:
    """The k largest products q·x of each query q with all rows x, or another similarity.

    Products are summed in float32, at the devices' highest precision. With several processes, all must call this with
    the same arguments.

    Args:
      blocks: all rows, in order, on the host or split over devices by `on_devices`.
      recall_target: None for exact. Otherwise `jax.lax.approx_max_k` chooses within each device's part of a block, and
        should find this share of the true results; it is made for TPUs, and exact on a CPU.
      similarity: of `simcse_jax.vectors.similarity`; for `cosine` queries and rows have unit length.

    Returns:
      Scores (Q, k), float32, largest first, -inf where there are fewer rows than k; and the numbers of the rows (Q, k).
      Of equal scores the lower row comes first.
    """
    size = min(1 << max(len(queries) - 1, 0).bit_length(), MAX_QUERIES)
    parts = []
    for start in range(0, len(queries), size):
        part = queries[start : start + size].astype(np.float32)
        parts.append(replicate(np.pad(part, ((0, size - len(part)), (0, 0))), replicated_sharding(mesh)))
    best = [_initial_best(size, k, mesh) for _ in parts]
    options = {"mesh": mesh, "recall_target": recall_target, "similarity": similarity}
    firsts = []
    for number, block in enumerate(blocks):
        firsts.append(block.first)
        before = best
        rows = on_devices(block.rows, mesh) if isinstance(block.rows, np.ndarray) else block.rows
        best = [
            merge(part, rows, number, block.count, old, decoding, **options)
            for part, old in zip(parts, best, strict=True)
        ]
        if rows is not block.rows:
            # At most two blocks are in flight, or all would be sent before the first is done.
            jax.block_until_ready(before)
    if not best or not firsts:
        return np.full((len(queries), k), -np.inf, np.float32), np.zeros((len(queries), k), np.int64)
    gathered = [Best(*map(np.asarray, gather(part, mesh=mesh))) for part in best]
    scores, numbers, places = (np.concatenate(arrays)[: len(queries)] for arrays in zip(*gathered, strict=True))
    return scores, np.array(firsts, np.int64)[numbers] + places


def _initial_best(queries: int, k: int, mesh: Mesh) -> Best:
    """The initial `Best` of each device."""

    def read(part: slice) -> Best:
        shape = (len(range(*part.indices(mesh.size))), queries, k)
        return Best(np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int32), np.zeros(shape, np.int32))

    return place(read, mesh.size, split_over_examples(mesh))


@functools.partial(jax.jit, static_argnames=("mesh", "recall_target", "similarity"))
def merge(
    queries: Float32[Array, "Q D"],
    rows: Shaped[Array, "R C"],
    number: Int[ArrayLike, ""],
    count: Int[ArrayLike, ""],
    best: Best,
    decoding: Decoding | None = None,
    *,
    mesh: Mesh,
    recall_target: float | None = None,
    similarity: str = "dot",
) -> Best:
    """Each device's best k of those so far and its part of a block.

    Computes scores (Q, R / devices), and makes a choice of k from them and one from 2k.

    Args:
      rows: (R, C), split over the devices; of float32, 16 bits, bytes or packed bits.
      number, count: of the block, and of its rows without padding; `number` is above every block in `best`.
      mesh, recall_target, similarity: see `top_k`.
    """

    def local(
        queries: jax.Array, rows: jax.Array, number: ArrayLike, count: ArrayLike, last: Best, decoding: Decoding | None
    ) -> Best:
        best = jax.tree.map(lambda array: array[0], last)
        places_in_block = jax.lax.axis_index(AXIS) * len(rows) + jnp.arange(len(rows))
        scores = similarity_scores(queries, decoded(rows, queries.shape[1], decoding), similarity)
        scores = jnp.where(scores == 0, 0.0, scores)  # a choice might put 0 before -0
        scores = jnp.where(places_in_block < count, scores, -jnp.inf)
        k = best.scores.shape[1]
        if recall_target is None:
            block_scores, places = jax.lax.top_k(scores, min(k, len(rows)))
        else:
            block_scores, places = jax.lax.approx_max_k(scores, min(k, len(rows)), recall_target=recall_target)
        # Those so far are lower rows and come first; of equal elements, `top_k` takes the first.
        scores, chosen = jax.lax.top_k(jnp.concatenate([best.scores, block_scores], axis=1), k)
        new = (jnp.full_like(places, number), places_in_block[places])
        numbers = [jnp.concatenate(pair, axis=1) for pair in zip(best[1:], new, strict=True)]
        kept = Best(scores, *[jnp.take_along_axis(array, chosen, axis=1) for array in numbers])
        return jax.tree.map(lambda array: array[None], kept)

    specs = (P(), P(AXIS), P(), P(), P(AXIS), P())
    function = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(AXIS))
    return function(queries, rows, number, count, best, decoding)


@functools.partial(jax.jit, static_argnames="mesh")
def gather(best: Best, *, mesh: Mesh) -> Best:
    """The best k of all devices' (devices, Q, k), on every device: (Q, k)."""
    k = best.scores.shape[-1]
    whole = jax.lax.with_sharding_constraint(best, replicated_sharding(mesh))
    scores, blocks, places = (jnp.moveaxis(array, 0, 1).reshape(array.shape[1], -1) for array in whole)
    descending = jnp.where(jnp.isnan(scores), -jnp.inf, -scores)  # NaN comes first, as in `top_k`
    _, blocks, places, scores = jax.lax.sort((descending, blocks, places, scores), dimension=1, num_keys=3)
    return Best(scores[:, :k], blocks[:, :k], places[:, :k])
