"""An index's vectors on the devices of all processes, in float32 or smaller.

Each device has a part of each block. Blocks that fit stay; the others are sent for every search. The index also keeps
its vectors on the host, or mapped from its file, to save them and to refine results. On a CPU, float32 vectors are not
copied, since the host's memory is the device's.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Shaped

from simcse_jax.errors import UserError
from simcse_jax.index.top_k import Block, on_devices
from simcse_jax.vectors.quantization import Quantization
from simcse_jax.vectors.similarity import norm_order

Storage = Literal["float32", "float16", "bfloat16", "int8", "binary"]
STORAGES = get_args(Storage)
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
RESERVE = 0.25  # of a device's memory, for the encoder and the scores


class Placed:
    """Blocks on the devices, by the host's arrays that they were made from."""

    def __init__(self, mesh: Mesh, storage: Storage = "float32", quantization: Quantization | None = None):
        """No blocks so far; `quantization` turns float32 into int8 or binary."""
        self.mesh, self.storage, self.quantization = mesh, storage, quantization
        # By the id of the host's array; the array itself is kept too, so that no other gets its id.
        self._blocks: dict[int, tuple[Any, jax.Array]] = {}
        self._lengths: dict[int, tuple[Any, float]] = {}

    def blocks(self, blocks: Sequence[Block]) -> Iterator[Block]:
        """The blocks of an index on the devices; on a CPU, memory-mapped blocks in float32 stay mapped."""
        self._forget(blocks)
        room = free_memory()
        for block in blocks:
            copy = self._blocks.get(id(block.rows))  # a reference, since another thread may search
            if copy is None:
                rows = stored(np.asarray(block.rows), self.storage, block.first, self.quantization)
                needed = rows.nbytes / self.mesh.size
                if needed > room:
                    yield Block(rows, block.first, block.count)
                    continue
                room -= needed
                copy = self._blocks[id(block.rows)] = (block.rows, on_devices(rows, self.mesh))
            yield Block(copy[1], block.first, block.count)

    def _forget(self, blocks: Sequence[Block]) -> None:
        """Drops blocks that left the index: adding rows replaces the last block."""
        keys = {id(block.rows) for block in blocks}
        for kept in (self._blocks, self._lengths):
            for key in set(kept) - keys:
                kept.pop(key, None)

    def longest(self, blocks: Sequence[Block], similarity: str) -> float:
        """The largest norm of a vector; for `cosine` they all have unit length."""
        if similarity == "cosine":
            return 1 + 1e-6
        self._forget(blocks)
        for block in blocks:
            if id(block.rows) not in self._lengths:
                lengths = np.linalg.norm(np.asarray(block.rows), norm_order(similarity), axis=1)
                self._lengths[id(block.rows)] = (block.rows, float(lengths.max(initial=0)) * (1 + 1e-4))
        return max((self._lengths[id(block.rows)][1] for block in blocks), default=0.0)


def stored(
    rows: Shaped[np.ndarray, "R D"], storage: Storage, first: int = 0, quantization: Quantization | None = None
) -> Shaped[np.ndarray, "R C"]:
    """Converts rows to `storage`; refuses elements too large for 16 bits. `first` is the first row's number."""
    if storage == "float32":  # or the index's own precision
        return rows
    if storage in ("int8", "binary"):
        assert quantization is not None
        return quantization.encode(rows)
    with np.errstate(over="ignore"):
        converted = rows.astype(DTYPES[storage])
    beyond = np.isinf(converted).any(axis=1)
    if beyond.any():
        row = first + int(np.flatnonzero(beyond)[0])
        raise UserError(f"row {row} of the index has an element beyond {storage}; choose another storage")
    return converted


def free_memory() -> float:
    """Bytes that an index may use on each of this process's devices; unlimited if unknown, as for CPUs."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return min((1 - RESERVE) * device.get("bytes_limit", math.inf) - device.get("bytes_in_use", 0) for device in stats)
