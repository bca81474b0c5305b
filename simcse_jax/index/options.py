"""The options of indexes and searches, checked before anything is encoded."""

import math
from typing import Any, Literal, TypedDict

import numpy as np

from simcse_jax.errors import UserError, require
from simcse_jax.index.candidates import CODES
from simcse_jax.index.placed import STORAGES, Storage
from simcse_jax.vectors.similarity import PRODUCTS

MOST = 1024  # candidates per result
PRECISIONS = ("float32", *CODES)  # that an index can keep

Backend = Literal["jax", "faiss"]
BACKENDS = ("jax", "faiss")


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
    threshold: Any,
    recall_target: Any = 0.95,
    backend: Any = "jax",
    similarity: str = "cosine",
    storage: Any = "float32",
    rescore: Any = None,
    precision: str = "float32",
) -> None:
    """Checks the arguments of `Index.search` before anything is encoded."""
    if not isinstance(top_k, int | np.integer) or isinstance(top_k, bool) or top_k < 1:
        raise UserError(f"top_k={top_k!r}: must be a whole number, 1 or more")
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if threshold is not None and (not number or math.isnan(threshold)):
        raise UserError(f"threshold={threshold!r}: must be a number; a cosine is at least -1 and at most 1")
    if not isinstance(recall_target, int | float) or not 0 < recall_target <= 1:
        raise UserError(f"recall_target={recall_target!r}: must be above 0 and at most 1")
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise UserError(f"backend={backend!r}: not one of {', '.join(BACKENDS)}")
    if not isinstance(storage, str) or storage not in STORAGES:
        raise UserError(f"storage={storage!r}: not one of {', '.join(STORAGES)}")
    if backend != "jax" and storage not in ("float32", *CODES):
        raise UserError(f"storage={storage!r}: is for backend='jax'; {backend} keeps float32, int8 or binary")
    check_small(rescore, storage, precision, backend, similarity)
    if backend == "faiss":
        require("faiss", "faiss", where="backend='faiss'")
        if similarity not in PRODUCTS:
            raise UserError(f"backend='faiss': compares by {' or '.join(PRODUCTS)}, not by {similarity}; leave it out")


def check_small(rescore: Any, storage: str, precision: str, backend: str, similarity: str) -> None:
    """Checks a search in bytes or bits."""
    if precision != "float32" and storage != "float32":
        raise UserError(f"storage={storage!r}: the index keeps and searches {precision}; leave it out")
    if "binary" in (storage, precision) and similarity != "cosine":
        raise UserError(f"binary vectors have no lengths, and are compared by cosine, not by {similarity}; use int8")
    if rescore is None:
        return
    if not isinstance(rescore, int | np.integer) or isinstance(rescore, bool) or not 1 <= rescore <= MOST:
        raise UserError(f"rescore={rescore!r:.40}: must be a whole number, from 1 to {MOST}")
    if storage not in CODES and not (precision == "binary" and backend == "faiss"):
        why = "is for storage='int8' or 'binary'" if precision == "float32" else f"all rows of {precision} are scored"
        raise UserError(f"rescore={rescore}: {why}; leave it out")


def check_precision(precision: Any, similarity: str, has_ranges: bool = False) -> None:
    """Checks the precision of a new index."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise UserError(f"precision {precision!r:.60} of an index is not one of {', '.join(PRECISIONS)}")
    check_small(None, "float32", precision, "jax", similarity)
    if has_ranges and precision != "int8":
        raise UserError(f"ranges: are for an index of int8; leave them out for precision {precision}")
