import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest

from simcse_jax.encoding.calibration import chosen_ranges, read_ranges
from simcse_jax.encoding.parquet import rows_table, schema_of
from simcse_jax.encoding.quantization import Quantization
from simcse_jax.errors import UserError

RANGES = np.stack([np.arange(4) / np.float32(3), np.arange(4) + np.float32(1)]).astype(np.float32)
CONTENT = Quantization("int8", 4, RANGES).content()


def test_ranges_are_read_from_whatever_keeps_them(tmp_path):
    np.save(tmp_path / "ranges.npy", RANGES)
    np.save(tmp_path / "emb.npy", np.zeros((3, 4), np.int8))
    (tmp_path / "emb.npy.quantization.json").write_text(json.dumps(CONTENT))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".quantization.json").write_text(json.dumps({"plan": "x", **CONTENT, "seal": "y"}))
    shutil.copytree(tmp_path / "folder", tmp_path / "earlier")
    (tmp_path / "earlier" / ".quantization.json").rename(tmp_path / "earlier" / "quantization.json")
    schema = schema_of(4, np.dtype(np.int8), None, False, CONTENT)
    pyarrow.parquet.write_table(rows_table(schema, None, 0, np.zeros((3, 4), np.int8)), tmp_path / "emb.parquet")
    (tmp_path / "LOUD.PARQUET").write_bytes((tmp_path / "emb.parquet").read_bytes())
    (tmp_path / "LOUD.NPY").write_bytes((tmp_path / "ranges.npy").read_bytes())
    names = (
        "ranges.npy",
        "emb.npy",
        "emb.npy.quantization.json",
        "folder",
        "earlier",
        "emb.parquet",
        "LOUD.PARQUET",
        "LOUD.NPY",
    )
    for name in names:
        np.testing.assert_array_equal(read_ranges(str(tmp_path / name), 4), RANGES)
        with pytest.raises(UserError, match=r"of shape \(2, 4\); the embeddings need \(2, 5\)"):
            read_ranges(str(tmp_path / name), 5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", None, "no such file"),
        ("a.npy", b"", "cannot be read as ranges"),
        ("a.json", b"{", "not valid JSON"),
        ("a.json", b"\xff", "cannot be read as ranges"),
        ("a.json", json.dumps({**CONTENT, "ranges": [[1], [2]]}).encode(), r"of shape \(2, 1\)"),
        ("a.json", json.dumps(Quantization("ubinary", 4).content()).encode(), "has no ranges, but ubinary"),
        ("a.parquet", b"PAR1", "cannot be read as ranges"),
    ],
)
def test_a_file_without_ranges_is_named(name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}.*{message}"):
        read_ranges(str(tmp_path / name))


def test_embeddings_are_not_taken_for_ranges(tmp_path):
    for rows in (np.zeros((3, 4), np.float32), np.zeros((2, 4), np.int8), np.zeros(4, np.float32)):
        np.save(tmp_path / "emb.npy", rows)
        with pytest.raises(UserError, match="ranges are numbers of float32"):
            read_ranges(str(tmp_path / "emb.npy"))
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "emb.parquet")
    with pytest.raises(UserError, match="has no ranges; they are kept"):
        read_ranges(str(tmp_path / "emb.parquet"))


def test_the_arguments_of_an_encoding_are_checked_before_it(tmp_path):
    np.save(tmp_path / "ranges.npy", RANGES)
    for given in (RANGES, RANGES.tolist(), tmp_path / "ranges.npy", str(tmp_path / "ranges.npy")):
        np.testing.assert_array_equal(chosen_ranges("int8", given, 4, 1), RANGES)
    assert chosen_ranges("int8", None, 4, 2) is None and chosen_ranges("binary", None, 4, 1) is None
    for arguments, message in (
        (("int8", None, 4, 1), "a single embedding"),
        (("binary", RANGES, 4, 2), "leave them out for precision binary"),
        (("float32", RANGES, 4, 2), "leave them out for precision float32"),
        (("int9", None, 4, 2), "'int9' is not one of"),
    ):
        with pytest.raises(UserError, match=message):
            chosen_ranges(*arguments)


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "n" * 300, "~nobody-of-that-name/x", "a/" * 3000, "caf\udce9", "a\0b"]
)
def test_a_name_of_any_kind_is_refused_in_a_line(name):
    with pytest.raises(UserError) as found:
        read_ranges(name)
    assert len(str(found.value)) < 8000
