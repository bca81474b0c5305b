"""The options of indexes and searches, checked before anything is encoded."""

from typing import Any, Literal, TypedDict, get_args

import numpy as np

from simcse_jax.errors import UserError, require
from simcse_jax.index.candidates import CODES
from simcse_jax.index.placed import STORAGES, Storage
from simcse_jax.vectors.similarity import PRODUCTS

PRECISIONS = ("float32", *CODES)  # that an index can keep

Backend = Literal["jax", "faiss"]


class SearchOptions(TypedDict, total=False):
    """The keyword options of `SimCSE.search`."""

    column: str | None
    approximate: bool
    recall_target: float
    backend: Backend
    storage: Storage
    rescore: int | None
    refine: int | None
    nprobes: int | None


def check_search(
    top_k: Any,
    threshold: float | None,
    backend: str = "jax",
    similarity: str = "cosine",
    storage: str = "float32",
    precision: str = "float32",
) -> None:
    """Checks the arguments of `Index.search`."""
    if not isinstance(top_k, int | np.integer) or top_k < 1:
        raise UserError(f"top_k={top_k!r}: must be a whole number, 1 or more")
    if isinstance(threshold, str) or threshold != threshold:
        raise UserError(f"threshold={threshold!r}: must be a number; a cosine is at least -1 and at most 1")
    for name, value, choices in (("backend", backend, get_args(Backend)), ("storage", storage, STORAGES)):
        if value not in choices:
            raise UserError(f"{name}={value!r}: not one of {', '.join(choices)}")
    if precision != "float32" and storage != "float32":
        raise UserError(f"storage={storage!r}: the index keeps and searches {precision}; leave it out")
    _check_binary(similarity, storage, precision)
    if backend == "faiss":
        require("faiss", "faiss", where="backend='faiss'")
        if similarity not in PRODUCTS or storage not in PRECISIONS:
            kept = f"by {' or '.join(PRODUCTS)}, in {', '.join(PRECISIONS)}"
            raise UserError(f"backend='faiss': compares {kept}, not by {similarity} in {storage}; leave it out")


def check_precision(precision: Any, similarity: str, has_ranges: bool = False) -> None:
    """Checks the precision of a new index."""
    if precision not in PRECISIONS:
        raise UserError(f"precision {precision!r:.60} of an index is not one of {', '.join(PRECISIONS)}")
    _check_binary(similarity, precision)
    if has_ranges and precision != "int8":
        raise UserError(f"ranges: are for an index of int8; leave them out for precision {precision}")


def _check_binary(similarity: str, *kinds: str) -> None:
    if "binary" in kinds and similarity != "cosine":
        raise UserError(f"binary vectors have no lengths, and are compared by cosine, not by {similarity}; use int8")
