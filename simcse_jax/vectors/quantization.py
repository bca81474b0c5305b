"""Embeddings in a byte or a bit an element, as sentence-transformers' `quantize_embeddings` defines them.

int8, uint8: the range of each dimension, from its smallest value a to its largest b in some embeddings, is divided into
255 steps of s = (b − a) / 255. An element x becomes the number of its step,

    c = min(max(⌊(x − a) / s⌋, 0), 255),        c − 128 for int8,        x̃ = a + (c + ½) s.

x̃ is the middle of the step, so it is off by s / 2 at most where x is in the range. A dimension that was constant has
s = 0; sentence-transformers takes 1 instead, and x̃ = a.

binary, ubinary: an element becomes the bit x > 0, eight of them a byte, the first one in the highest bit; the last byte
is filled up with zeros. binary is int8, the same byte less 128. x̃ = ± 1 / √D, which has unit length.
"""

import dataclasses
import io
import math
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Literal, Self, cast, get_args

import numpy as np
from jaxtyping import Float, Float32, Int8, Shaped, UInt8
from numpy.typing import ArrayLike

from simcse_jax.errors import UserError, system_message
from simcse_jax.host.hidden import DOT, RANGES
from simcse_jax.host.storage import Folder, as_path, parse_json, sha256
from simcse_jax.vectors.parquet import QUANTIZATION

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS = get_args(Precision)
SCALAR = ("int8", "uint8")
PACKED = ("binary", "ubinary")
STEPS = 255
FEW = 100  # embeddings; ranges found in fewer give a warning
Codes = Int8[np.ndarray, "N C"] | UInt8[np.ndarray, "N C"]
Ranges = Float32[np.ndarray, "2 D"]


def check_precision(precision: Any, name: str = "precision", ranges: Any = None) -> None:
    """Refuses anything but one of `PRECISIONS`, and ranges for one that has none; `name` is the argument's."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise UserError(f"{name} {precision!r:.60} is not one of {', '.join(PRECISIONS)}")
    if ranges is not None and precision not in SCALAR:
        raise UserError(f"ranges: are for {' and '.join(SCALAR)}; leave them out for precision {precision}")


def dtype_of(precision: str) -> np.dtype:
    """The dtype of elements in a precision; other names are dtypes themselves."""
    return np.dtype({"binary": "int8", "ubinary": "uint8"}.get(precision, precision))


def check_no_codes(embeddings: np.ndarray) -> None:
    """Refuses bytes: codes, not embeddings."""
    if embeddings.dtype in (np.int8, np.uint8):
        raise UserError(f"embeddings of type {embeddings.dtype}: vectors.quantization.dequantize makes numbers of them")


def ranges_of(embeddings: Float[np.ndarray, "N D"]) -> Ranges:
    """The smallest and the largest value of each dimension, (2, D)."""
    check_no_codes(embeddings)
    if embeddings.ndim != 2 or not len(embeddings):
        raise UserError(f"ranges are found in embeddings (N, D), of which N is 1 or more; these are {embeddings.shape}")
    _check_finite(embeddings)
    return np.stack([embeddings.min(axis=0), embeddings.max(axis=0)]).astype(np.float32)


def merge_ranges(parts: Iterable[Ranges]) -> Ranges:
    """The ranges of all embeddings, from those of each part of them."""
    lows, highs = zip(*parts, strict=True)
    return np.stack([np.min(lows, axis=0), np.max(highs, axis=0)])


def checked_ranges(ranges: Any, dimension: int | None, where: str = "ranges") -> Ranges:
    """Ranges as float32, (2, D); D is the `dimension`, or any."""
    try:
        array = np.asarray(ranges)
    except (TypeError, ValueError):
        array = np.array(None)
    wanted = "(2, D)" if dimension is None else f"(2, {dimension})"
    if array.dtype.kind not in "iuf":
        raise UserError(f"{where}: not numbers; give {wanted}: the smallest and the largest value of each dimension")
    right = array.ndim == 2 and len(array) == 2 and array.shape[1] > 0
    if not right or dimension not in (None, array.shape[1]):
        raise UserError(f"{where}: of shape {array.shape}; the embeddings need {wanted}")
    with np.errstate(over="ignore", invalid="ignore"):
        array = array.astype(np.float32)
        widths = array[1] - array[0]  # two numbers far apart have no steps in float32
    wrong = np.flatnonzero(~np.isfinite(array).all(axis=0) | ~np.isfinite(widths) | (widths < 0))
    if wrong.size:
        low, high = array[:, wrong[0]].tolist()
        raise UserError(f"{where}: dimension {wrong[0]} is from {low} to {high}; give two finite numbers, ascending")
    return array


def check_calibration(count: int) -> None:
    """Refuses to find ranges in a single embedding, whose dimensions would all be constant."""
    if count == 1:
        raise UserError("int8 and uint8 need ranges, which cannot be found in a single embedding; give ranges")


def warn_of_few(count: int, stacklevel: int) -> None:
    """Warns of ranges that were found in few embeddings; `stacklevel` as for `warnings.warn`."""
    if 0 < count < FEW:
        warnings.warn(f"the ranges are those of {count} embeddings alone; give ranges of more", UserWarning, stacklevel)


@dataclasses.dataclass(frozen=True, eq=False)
class Quantization:
    """How embeddings of D = `dimension` elements are stored; `ranges` (2, D) are for int8 and uint8, otherwise None."""

    precision: Precision
    dimension: int
    ranges: Ranges | None = None

    @property
    def width(self) -> int:
        """C, the elements of a stored row."""
        return -(-self.dimension // 8) if self.precision in PACKED else self.dimension

    @property
    def dtype(self) -> np.dtype:
        """The type of a stored element."""
        return dtype_of(self.precision)

    @property
    def _starts_and_steps(self) -> tuple[Float32[np.ndarray, " D"], Float32[np.ndarray, " D"]]:
        assert self.ranges is not None
        return self.ranges[0], (self.ranges[1] - self.ranges[0]) / STEPS

    def encode(self, embeddings: Float[np.ndarray, "N D"]) -> Shaped[np.ndarray, "N C"]:
        """The rows as they are stored."""
        _check_finite(embeddings)
        if self.precision == "float32":
            return embeddings.astype(np.float32, copy=False)
        if self.precision in PACKED:
            bits = np.packbits(embeddings > 0, axis=-1)
            return bits if self.precision == "ubinary" else (bits ^ 0x80).view(np.int8)
        starts, steps = self._starts_and_steps
        numbers = np.clip(np.floor((embeddings - starts) / np.where(steps == 0, 1, steps)), 0, STEPS)
        return numbers.astype(np.uint8) if self.precision == "uint8" else (numbers - 128).astype(np.int8)

    def decode(self, codes: Shaped[np.ndarray, "N C"]) -> Float32[np.ndarray, "N D"]:
        """The rows x̃ that are compared instead of those encoded."""
        if self.precision == "float32":
            return codes.astype(np.float32, copy=False)
        if self.precision in PACKED:
            bits: np.ndarray = codes if self.precision == "ubinary" else codes.view(np.uint8) ^ 0x80
            signs = np.unpackbits(bits, axis=-1, count=self.dimension).astype(np.float32) * 2 - 1
            return signs * np.float32(1 / math.sqrt(self.dimension))
        scale, shift = self.affine()
        return codes * scale + shift

    def affine(self) -> tuple[Float32[np.ndarray, " D"], Float32[np.ndarray, " D"]]:
        """x̃ = `scale` · code + `shift`, for int8 and uint8."""
        starts, steps = self._starts_and_steps
        zero = 128.5 if self.precision == "int8" else 0.5
        return steps, (starts + np.float32(zero) * steps).astype(np.float32)

    def content(self) -> dict[str, Any]:
        """The fields, for JSON; float32 numbers are exact there."""
        return {
            "precision": self.precision,
            "dimension": self.dimension,
            "ranges": None if self.ranges is None else self.ranges.tolist(),
            "ranges_sha256": None if self.ranges is None else sha256(self.ranges),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], where: str) -> Self:
        """Reads `content` back; `where` is what it was read from."""
        precision, dimension, ranges = content.get("precision"), content.get("dimension"), content.get("ranges")
        whole = type(dimension) is int and 0 < dimension < 1 << 24 and precision in PRECISIONS
        if not whole or (ranges is None) == (precision in SCALAR):
            raise UserError(f"{where}: what it says about its precision is damaged")
        assert isinstance(dimension, int)
        checked = None if ranges is None else checked_ranges(ranges, dimension, where)
        if checked is not None and sha256(checked) != content.get("ranges_sha256"):
            raise UserError(f"{where}: its ranges were changed since they were written; encode again")
        return cls(cast(Precision, precision), dimension, checked)


def quantize(
    embeddings: Float[np.ndarray, "*N D"], precision: Precision, ranges: ArrayLike | None = None
) -> Shaped[np.ndarray, "*N C"]:
    """Embeddings, (D,) or (N, D), in another precision.

    Args:
      precision: int8, uint8, binary or ubinary; float32 leaves them as they are.
      ranges: for int8 and uint8; None finds them in the embeddings.
    """
    check_precision(precision, ranges=ranges)
    check_no_codes(embeddings)
    rows = np.atleast_2d(embeddings)
    dimension, checked = rows.shape[1], None
    if precision in SCALAR and ranges is not None:
        checked = checked_ranges(ranges, dimension)
    elif precision in SCALAR:
        check_calibration(len(rows))
        checked = ranges_of(rows) if len(rows) else np.zeros((2, dimension), np.float32)
    codes = Quantization(precision, dimension, checked).encode(rows)
    return codes[0] if embeddings.ndim == 1 else codes


def dequantize(codes: Codes, precision: Precision, dimension: int, ranges: ArrayLike | None = None) -> np.ndarray:
    """The rows x̃ (N, D) float32 of codes (N, C); `ranges` (2, D) are those that they were made with."""
    check_precision(precision, ranges=ranges)
    kind = Quantization(precision, dimension, checked_ranges(ranges, dimension) if precision in SCALAR else None)
    if codes.ndim != 2 or codes.shape[1] != kind.width or codes.dtype != kind.dtype:
        raise UserError(f"codes: {codes.dtype} {codes.shape}; {precision} has {kind.dtype} (N, {kind.width})")
    return kind.decode(codes)


def _check_finite(embeddings: Float[np.ndarray, "N D"]) -> None:
    wrong = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if wrong.size:
        raise UserError(f"embedding {wrong[0]} has a NaN or infinite element")


def chosen_ranges(
    precision: Precision, ranges: ArrayLike | str | Path | None, dimension: int, count: int
) -> Ranges | None:
    """Checks the precision of an encoding, and reads its ranges, before anything is encoded.

    Args:
      ranges: (2, D), or a file with them, see `read_ranges`; None finds them in the embeddings.

    Returns:
      None: there are none, or they are found in the embeddings.
    """
    check_precision(precision, ranges=ranges)
    if precision not in SCALAR:
        return None
    if isinstance(ranges, str | Path):
        return read_ranges(str(ranges), dimension)
    if ranges is not None:
        return checked_ranges(ranges, dimension)
    check_calibration(count)
    return None


def read_ranges(name: str, dimension: int | None = None) -> Ranges:
    """Ranges from a file or a folder.

    Args:
      name: a .npy (2, D); or what `encode` wrote in int8 or uint8: a .parquet, a folder, or a .npy with its
        `.npy.quantization.json`; or that file itself.
      dimension: D; None: any.
    """
    path = as_path(name)
    try:
        if path.is_dir():
            path = path / f"{DOT}{RANGES}"
        beside = path.parent / f"{path.name}.{RANGES}"
        if path.suffix.lower() == ".npy" and beside.is_file():
            path = beside
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError(2, "no such file")
        with path.open("rb") as file:
            if path.suffix.lower() == ".npy":
                return checked_ranges(np.load(io.BytesIO(file.read()), allow_pickle=False), dimension, name)
            content = _read_description(path, file)
    except UserError:
        raise
    except Exception as error:  # of a disk, a store's client, NumPy or pyarrow
        raise UserError(f"{path}: cannot be read as ranges: {system_message(error)}") from None
    quantization = Quantization.from_content(content, str(path))
    if quantization.ranges is None:
        raise UserError(f"{path}: has no ranges, but {quantization.precision}; they are kept with int8 and uint8")
    return checked_ranges(quantization.ranges, dimension, name)


def _read_description(path: Folder, file: IO[bytes]) -> dict[str, Any]:
    if path.suffix.lower() != ".parquet":
        return parse_json(file.read(1 << 26).decode(), str(path))
    import pyarrow.parquet

    content = (pyarrow.parquet.read_schema(file).metadata or {}).get(QUANTIZATION)
    if content is None:
        raise UserError(f"{path}: has no ranges; they are kept with embeddings of int8 and uint8")
    return parse_json(content.decode(), str(path))
