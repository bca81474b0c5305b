"""What an index of LanceDB keeps of each embedding, and by what it finds candidates.

precision   columns of the table                                  candidates
float32     `vector`                                              by LanceDB's own codes of vectors, see `CODES`
int8        `code`, a byte an element; `bits`, a bit an element   by the bits that differ from the query's
binary      `bits`                                                the same

LanceDB compares bits, and no bytes; so an index of int8 has bits too. Its candidates are then scored as everywhere: the
query in float32 with the numbers that a row's bytes or bits stand for (`encoding.quantization`).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from simcse_jax.encoding.quantization import (
    Clipped,
    Quantization,
    Ranges,
    check_calibration,
    checked_ranges,
    merged,
    ranges_of,
    warn_of_few,
)
from simcse_jax.errors import UserError
from simcse_jax.host.storage import sha256
from simcse_jax.index.options import check_precision
from simcse_jax.index.rescore import quantization_for
from simcse_jax.index.similarity import prepared

if TYPE_CHECKING:
    import pyarrow

PRODUCT, INT8, BINARY = CODES = ("product", "int8", "binary")
CALIBRATION = 1 << 17  # rows whose ranges are taken, as for an index in memory
CODE_OF = 4  # elements of a vector in a byte of its product code, or as few more as divide it evenly
MOST_OF_A_CODE = 8


class Wanted(NamedTuple):
    """What a user asks of an index; None: what it has already, or else the default."""

    precision: str | None = None
    ranges: Ranges | None = None
    codes: str | None = None


UNSAID = Wanted()


class Kept(NamedTuple):
    """What a table has of an embedding."""

    codes: str | None = PRODUCT  # of vectors in float32
    quantization: Quantization | None = None  # of other precisions; None: float32

    @property
    def precision(self) -> str:
        """One of `index.options.PRECISIONS`."""
        return "float32" if self.quantization is None else INT8 if self.quantization.ranges is not None else BINARY

    @property
    def searched(self) -> str:
        """The column that LanceDB compares with a query."""
        return "vector" if self.quantization is None else "bits"

    @property
    def scored(self) -> str:
        """The column that gives a candidate's score."""
        return {"float32": "vector", INT8: "code", BINARY: "bits"}[self.precision]

    def fields(self, dimension: int) -> "list[tuple[str, pyarrow.DataType]]":
        """The columns of an embedding."""
        from pyarrow import float32, int8, list_, uint8

        if self.quantization is None:
            return [("vector", list_(float32(), dimension))]  # in float16, scores would be rounded too
        bits = ("bits", list_(uint8(), -(-dimension // 8)))
        return [("code", list_(int8(), dimension)), bits] if self.precision == INT8 else [bits]

    def is_in(self, schema: "pyarrow.Schema", dimension: int) -> bool:
        """Whether a table has the columns of `fields`."""
        there = {field.name: field.type for field in schema}
        return all(name in there and there[name].equals(kind) for name, kind in self.fields(dimension))

    def values(self, embeddings: Float[np.ndarray, "n D"], clipped: Clipped) -> list[Shaped[np.ndarray, "n C"]]:
        """What the columns of `fields` have for n embeddings of any length; `clipped` counts what int8 cannot hold."""
        rows = embeddings.astype(np.float32, copy=False)
        if self.quantization is None:
            return [rows]
        rows = prepared(rows, "cosine").astype(np.float32, copy=False)
        stored = self.quantization.encode(rows, clipped)
        return [stored, self.bits(rows)] if self.precision == INT8 else [stored]

    def bits(self, rows: Float[np.ndarray, "n D"]) -> Shaped[np.ndarray, "n C"]:
        """The bits of queries, or of rows."""
        return Quantization("ubinary", rows.shape[1]).encode(rows)

    def scores(self, query: Float[np.ndarray, " D"], stored: Shaped[np.ndarray, "n C"]) -> Float[np.ndarray, " n"]:
        """The cosines of a query of unit length with rows of bytes or bits, float64."""
        assert self.quantization is not None
        return self.quantization.decode(stored).astype(np.float64) @ query.astype(np.float64)

    def content(self) -> dict[str, Any]:
        """The fields of index.json."""
        if self.quantization is None:
            return {"codes": self.codes}
        ranges = self.quantization.ranges
        if ranges is None:
            return {"precision": self.precision}
        return {"precision": self.precision, "ranges": ranges.tolist(), "ranges_sha256": sha256(ranges)}

    def cells(self, dimension: int, shared: Mapping[str, Any]) -> Any:
        """How LanceDB is to find cells and codes; `shared` has what is the same for all codes."""
        from lancedb.index import IvfFlat, IvfPq, IvfRq, IvfSq

        if self.quantization is not None:
            return IvfFlat(**{**shared, "distance_type": "hamming"})
        if self.codes != PRODUCT:
            return IvfSq(**shared) if self.codes == INT8 else IvfRq(**shared)
        width = next((width for width in range(CODE_OF, MOST_OF_A_CODE + 1) if dimension % width == 0), None)
        # No code divides some vectors evenly.
        return IvfFlat(**shared) if width is None else IvfPq(**shared, num_sub_vectors=dimension // width)


def read_kept(content: Mapping[str, Any], dimension: int, small: bool, damaged: str) -> Kept:
    """What an index.json says; `small`: whether its format is that of bytes and bits.

    Raises:
      UserError: with the message `damaged`.
    """
    precision, ranges = content.get("precision", "float32"), content.get("ranges")
    if not small:
        codes = content.get("codes", PRODUCT)  # earlier versions have no others
        if precision != "float32" or codes not in CODES:
            raise UserError(damaged)
        return Kept(codes)
    if precision not in (INT8, BINARY) or (ranges is None) != (precision == BINARY):
        raise UserError(damaged)
    if ranges is None:
        return Kept(None, quantization_for(BINARY, dimension, None))
    try:
        found = checked_ranges(ranges, dimension)
    except UserError as error:
        raise UserError(f"{damaged} ({error})") from None
    if sha256(found) != content.get("ranges_sha256"):
        raise UserError(f"{damaged} (its ranges were changed)")
    return Kept(None, quantization_for(INT8, dimension, found))


def check_wanted(wanted: Wanted, similarity: str, has: Kept | None, folder: object) -> None:
    """Checks what is asked of an index before its embeddings are read.

    Args:
      wanted: what is asked.
      similarity: by which it is compared.
      has: what an index that is there has; None: it is to be made.
      folder: for messages.
    """
    if has is not None:
        for what, asked, own in (("", wanted.precision, has.precision), ("codes ", wanted.codes, has.codes)):
            if asked not in (None, own):
                raise UserError(f"{folder}: an index of {what}{own}, not of {what}{asked}; choose another folder")
        ranges = None if has.quantization is None else has.quantization.ranges
        if wanted.ranges is not None and ranges is None:
            raise UserError(f"{folder}: an index of {has.precision}, which has no ranges; leave them out")
        if ranges is not None and wanted.ranges is not None and not np.array_equal(ranges, wanted.ranges):
            raise UserError(f"{folder}: an index of other ranges than those given; choose another folder")
        return
    precision = wanted.precision or "float32"
    if precision != "float32" and similarity != "cosine":
        raise UserError(
            f"precision {precision}: on a disk, rows are found by their bits, which have no lengths, so by cosine and "
            f"not by {similarity}; leave it out, or build the index in memory with int8"
        )
    check_precision(precision, similarity, wanted.ranges is not None)
    if wanted.codes is not None and (precision != "float32" or wanted.codes not in CODES):
        what = f"not one of {', '.join(CODES)}" if precision == "float32" else f"precision {precision} has none"
        raise UserError(f"codes {wanted.codes!r:.60}: {what}; leave them out")


def kept_for(wanted: Wanted, embeddings: Iterable[Float[np.ndarray, "_ D"]], dimension: int) -> Kept:
    """What a new index keeps.

    Args:
      wanted: see `check_wanted`.
      embeddings: of all rows, a part at a time; their first `CALIBRATION` give the ranges of int8 where none are given.
      dimension: D.

    Raises:
      UserError: when an embedding is not finite, or a single one has no ranges.
    """
    if wanted.precision in (None, "float32"):
        return Kept(wanted.codes or PRODUCT)
    if wanted.precision == BINARY:
        return Kept(None, quantization_for(BINARY, dimension, None))
    return Kept(
        None, quantization_for(INT8, dimension, _ranges(embeddings) if wanted.ranges is None else wanted.ranges)
    )


def _ranges(embeddings: Iterable[Float[np.ndarray, "_ D"]]) -> Ranges:
    parts, count = [], 0
    for part in embeddings:
        rows = prepared(part[: CALIBRATION - count].astype(np.float32), "cosine")
        parts.append(ranges_of(rows))
        count += len(rows)
        if count == CALIBRATION:
            break
    check_calibration(count)
    warn_of_few(count, stacklevel=2)
    return merged(parts)
