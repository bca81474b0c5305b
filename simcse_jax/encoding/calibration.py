"""The ranges that int8 and uint8 need: given as an array or a file, and kept next to what they were used for."""

import io
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.encoding.parquet import QUANTIZATION
from simcse_jax.encoding.quantization import (
    SCALAR,
    Precision,
    Quantization,
    Ranges,
    check_calibration,
    check_precision,
    checked_ranges,
)
from simcse_jax.errors import UserError, why
from simcse_jax.host.hidden import RANGES, dot_before
from simcse_jax.host.storage import Folder, as_path, parse_json


def chosen_ranges(
    precision: Precision, ranges: ArrayLike | str | Path | None, dimension: int, count: int
) -> Ranges | None:
    """Checks the precision of an encoding, and reads its ranges, before anything is encoded.

    Args:
      precision: of the result.
      ranges: (2, D), or a file with them, see `read_ranges`; None finds them in the embeddings.
      dimension: D.
      count: the number of embeddings.

    Returns:
      None: there are none, or they are found in the embeddings.
    """
    check_precision(precision)
    if ranges is not None and precision not in SCALAR:
        raise UserError(f"ranges: are for {' and '.join(SCALAR)}; leave them out for precision {precision}")
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
            path = path / f"{dot_before(path, RANGES)}{RANGES}"
        beside = path.parent / f"{path.name}.{RANGES}"
        if path.suffix.lower() == ".npy" and beside.is_file():
            path = beside
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError(2, "no such file")
        with path.open("rb") as file:
            if path.suffix.lower() == ".npy":
                return checked_ranges(_array(file), dimension, name)
            content = _described(path, file)
    except UserError:
        raise
    except Exception as error:  # of a disk, a store's client, NumPy or pyarrow
        raise UserError(f"{path}: cannot be read as ranges: {why(error)}") from None
    found = Quantization.from_content(content, str(path))
    if found.ranges is None:
        raise UserError(f"{path}: has no ranges, but {found.precision}; they are kept with int8 and uint8")
    return checked_ranges(found.ranges, dimension, name)


def _array(file: IO[bytes]) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if len(shape) != 2 or shape[0] != 2 or dtype.kind != "f":  # before all of a large file is read
        raise UserError(f"{getattr(file, 'name', 'ranges')}: {dtype} {shape}; ranges are numbers of float32, (2, D)")
    file.seek(0)
    return np.load(io.BytesIO(file.read()), allow_pickle=False)


def _described(path: Folder, file: IO[bytes]) -> dict[str, Any]:
    if path.suffix.lower() != ".parquet":
        return parse_json(file.read(1 << 26).decode(), str(path))
    import pyarrow.parquet

    said = (pyarrow.parquet.read_schema(file).metadata or {}).get(QUANTIZATION)
    if said is None:
        raise UserError(f"{path}: has no ranges; they are kept with embeddings of int8 and uint8")
    return parse_json(said.decode(), str(path))
