"""Where the vectors of an index are while it is searched: on all devices, of all processes, in float32 or less.

Each device has a part of each block. Blocks that fit stay there; the others are sent at every search. The index keeps
its vectors in float32 on the host as well, or mapped from its file: they are saved, and results are refined with them.
On a CPU, float32 is there only once, since the host's memory is the device's.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Shaped

from simcse_jax.encoding.quantization import Quantization
from simcse_jax.errors import UserError
from simcse_jax.index.similarity import norm_order
from simcse_jax.index.top_k import Block, on_devices

Storage = Literal["float32", "float16", "bfloat16", "int8", "binary"]
STORAGES = get_args(Storage)
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
RESERVE = 0.25  # of a device's memory, for the encoder and the scores


class Placed:
    """Blocks on the devices, known by the host's arrays that they are made of."""

    def __init__(
        self, mesh: Mesh, storage: Storage = "float32", keep: bool = True, quantization: Quantization | None = None
    ):
        """None so far.

        Args:
          mesh: the devices.
          storage: the type of the elements there.
          keep: whether blocks that fit stay; otherwise all are sent at every search.
          quantization: how float32 is stored as int8 or binary.
        """
        self.mesh, self.storage, self._keep, self.quantization = mesh, storage, keep, quantization
        # By the identity of the host's array, which is kept too, itself and no view, so that no other array gets it.
        self._blocks: dict[int, tuple[Any, jax.Array]] = {}
        self._lengths: dict[int, tuple[Any, float]] = {}

    def blocks(self, given: Sequence[Block]) -> Iterator[Block]:
        """The blocks of an index as they are searched.

        A CPU's device memory is the host's: there a memory-mapped block in float32 stays the file's.
        """
        self._forget(given)
        room = free_memory()
        for block in given:
            found = self._blocks.get(id(block.rows))  # kept here: another thread may search at the same time
            if found is None:
                rows = stored(np.asarray(block.rows), self.storage, block.first, self.quantization)
                needed = rows.nbytes / self.mesh.size
                if not self._keep or needed > room:
                    yield Block(rows, block.first, block.count)
                    continue
                room -= needed
                found = self._blocks[id(block.rows)] = (block.rows, on_devices(rows, self.mesh))
            yield Block(found[1], block.first, block.count)

    def _forget(self, given: Sequence[Block]) -> None:
        """Lets go of what is no longer in the index: the last block is replaced when rows are added."""
        there = {id(block.rows) for block in given}
        for kept in (self._blocks, self._lengths):
            for key in set(kept) - there:
                kept.pop(key, None)

    def longest(self, given: Sequence[Block], similarity: str) -> float:
        """The largest norm of a vector; for `cosine` they all have unit length."""
        if similarity == "cosine":
            return 1 + 1e-6
        self._forget(given)
        for block in given:
            if id(block.rows) not in self._lengths:
                lengths = np.linalg.norm(np.asarray(block.rows), norm_order(similarity), axis=1)
                self._lengths[id(block.rows)] = (block.rows, float(lengths.max(initial=0)) * (1 + 1e-4))
        return max((self._lengths[id(block.rows)][1] for block in given), default=0.0)


def stored(
    rows: Shaped[np.ndarray, "R D"], storage: Storage, first: int = 0, quantization: Quantization | None = None
) -> Shaped[np.ndarray, "R C"]:
    """The rows in another type; `first` is the number of the first one, `quantization` that of int8 and binary.

    Raises:
      UserError: when an element is too large for 16 bits.
    """
    if storage == "float32":  # or what the index keeps
        return rows
    if storage in ("int8", "binary"):
        assert quantization is not None
        return quantization.encode(rows)
    with np.errstate(over="ignore"):
        found = rows.astype(DTYPES[storage])
    beyond = np.isinf(found).any(axis=1)
    if beyond.any():
        row = first + int(np.flatnonzero(beyond)[0])
        raise UserError(f"row {row} of the index has an element beyond {storage}; choose another storage")
    return found


def free_memory() -> float:
    """Bytes that an index may take on each of this process's devices; unlimited if they do not say, as CPUs."""
    found = [device.memory_stats() or {} for device in jax.local_devices()]
    return min((1 - RESERVE) * each.get("bytes_limit", math.inf) - each.get("bytes_in_use", 0) for each in found)
