import json
import warnings

import numpy as np
import pyarrow.parquet
import pytest
from support.data import raises
from support.recorded import recorded

from simcse_jax.vectors import quantization
from simcse_jax.vectors.parquet import rows_table, schema_of
from simcse_jax.vectors.quantization import FEW, PRECISIONS, Quantization, dequantize, quantize, ranges_of

DIMENSION = 21  # its bits do not fill their last byte


def embeddings(rows: int = 120, seed: int = 0) -> np.ndarray:
    """With a dimension that is constant, one that is zero, and one whose range is tiny."""
    found = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    found[:, 3], found[:, 7], found[:, 9] = 0.25, 0, 1 + found[:, 9] * np.float32(1e-6)
    return found


def theirs() -> dict[str, np.ndarray]:
    """Of the two sets of embeddings, by precision; the second one with the ranges of the first."""
    from sentence_transformers.util.quantization import quantize_embeddings

    found, ranges = {}, ranges_of(embeddings())
    for precision in set(PRECISIONS) - {"float32"}:
        own = {"ranges": ranges} if precision.endswith("int8") else {}
        found[precision] = quantize_embeddings(embeddings(), precision)
        found[f"{precision}/others"] = quantize_embeddings(1.3 * embeddings(seed=1), precision, **own)
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
def test_values_are_those_of_sentence_transformers(precision):
    rows, others = embeddings(), 1.3 * embeddings(seed=1)  # partly beyond the ranges
    assert len(rows) > FEW
    peer = recorded("quantization", theirs, "sentence-transformers") | {"float32": rows, "float32/others": others}
    ranges = ranges_of(rows) if precision.endswith("int8") else None
    np.testing.assert_array_equal(quantize(rows, precision), peer[precision], strict=True)
    np.testing.assert_array_equal(quantize(others, precision, ranges), peer[f"{precision}/others"], strict=True)
    np.testing.assert_array_equal(quantize(others[5], precision, ranges), peer[f"{precision}/others"][5])
    assert quantize(rows[:0], precision).shape == (0, peer[precision].shape[1])


def test_what_is_decoded_is_half_a_step_away_at_most_and_a_description_read_back_exactly():
    for precision, lowest in (("int8", -128), ("uint8", 0)):
        rows = embeddings()
        ranges = ranges_of(rows)
        steps = (ranges[1] - ranges[0]) / 255
        codes = quantize(rows, precision, ranges)
        decoded = dequantize(codes, precision, DIMENSION, ranges)
        # The largest value begins a step of its own.
        assert (np.abs(decoded - rows) <= steps / 2 + 2e-6).all()
        np.testing.assert_array_equal(decoded[:, [3, 7]], rows[:, [3, 7]])  # constant dimensions
        lower = ranges[0] + (codes.astype(np.float32) - lowest) * steps
        np.testing.assert_allclose(decoded[:, steps > 0], (lower + steps / 2)[:, steps > 0], atol=1e-6)
        varied = steps > 1e-6
        np.testing.assert_array_equal(quantize(decoded, precision, ranges)[:, varied], codes[:, varied])
    rows = embeddings()
    merged = quantization.merge_ranges(map(ranges_of, (rows[:7], rows[7:])))
    np.testing.assert_array_equal(merged, ranges_of(rows))
    for precision in ("int8", "ubinary"):
        ranges = ranges_of(rows) if precision == "int8" else None
        before = Quantization(precision, DIMENSION, ranges)
        after = Quantization.from_content(json.loads(json.dumps(before.content())), "x")
        np.testing.assert_array_equal(after.encode(rows), before.encode(rows))
        assert after.encode(rows).shape[1] == after.width and after.encode(rows).dtype == after.dtype
    whole = before.content()
    damages = ({"precision": "int4"}, {"dimension": -1}, {"dimension": "21"}, {"ranges": [[0], [1]]})
    for damage in (*damages, {"precision": "int8"}, {"precision": "int8", "ranges": "?"}):
        raises("x:", Quantization.from_content, {**whole, **damage}, "x")
    edited = Quantization("int8", DIMENSION, ranges_of(rows)).content()
    edited["ranges"][1][3] += 1
    raises("x: its ranges were changed", Quantization.from_content, edited, "x")
    rows = embeddings()
    for precision in ("binary", "ubinary"):
        decoded = dequantize(quantize(rows, precision), precision, DIMENSION)
        np.testing.assert_array_equal(decoded > 0, rows > 0)
        np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-6)


def test_wrong_ranges_and_what_cannot_be_quantized_are_refused():
    for ranges, message in (
        (np.zeros((2, 5)), "ranges: of shape (2, 5); the embeddings need (2, 21)"),
        (np.zeros((3, 21)), "of shape (3, 21)"),
        ([[1, 2], [3]], "ranges: not numbers"),
        (np.full((2, 21), np.nan), "dimension 0 is from nan to nan"),
        (np.stack([np.zeros(21), np.r_[np.ones(4), -1, np.ones(16)]]), "dimension 4 is from 0.0 to -1.0"),
        (np.stack([np.zeros(21), np.full(21, 1e300)]), "dimension 0 is from 0.0 to inf"),
        (np.stack([np.full(21, -3e38), np.full(21, 3e38)]), "dimension 0 is from -3"),  # their steps would be infinite
    ):
        raises(message, quantization.checked_ranges, ranges, DIMENSION)
    rows = embeddings()
    ranges, codes = ranges_of(rows), {precision: quantize(rows, precision) for precision in PRECISIONS}
    wrong = rows.copy()
    wrong[4, 2] = np.nan
    for call, message in (
        (lambda: quantize(wrong, "int8"), "embedding 4 has a NaN or infinite element"),
        (lambda: quantize(wrong, "ubinary"), "embedding 4 has a NaN or infinite element"),
        (lambda: quantize(rows[0], "int8"), "single embedding; give ranges"),
        (lambda: quantize(rows, "ubinary", ranges), "leave them out for precision ubinary"),
        (lambda: quantize(rows, "int4"), "'int4' is not one of float32, int8"),
        (lambda: ranges_of(rows[:0]), "N is 1 or more"),
        (lambda: dequantize(codes["ubinary"], "int8", 21, ranges), "uint8 (120, 3); int8 has int8 (N, 21)"),
        (lambda: dequantize(codes["int8"], "int8", 21), "ranges: not numbers"),
        (lambda: dequantize(codes["ubinary"], "ubinary", 21, ranges), "leave them out for precision ubinary"),
        (lambda: quantize(codes["int8"], "binary"), "embeddings of type int8: "),
        (lambda: ranges_of(codes["uint8"]), "embeddings of type uint8: "),
    ):
        raises(message, call)


def test_arguments_are_checked_and_ranges_of_few_embeddings_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="those of 99 embeddings alone"):
        quantization.warn_of_few(FEW - 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantization.warn_of_few(FEW, 1)
    np.save(tmp_path / "ranges.npy", RANGES)
    for given in (RANGES, RANGES.tolist(), tmp_path / "ranges.npy", str(tmp_path / "ranges.npy")):
        np.testing.assert_array_equal(quantization.chosen_ranges("int8", given, 4, 1), RANGES)
    for given in (("int8", None, 4, 2), ("binary", None, 4, 1)):
        assert quantization.chosen_ranges(*given) is None
    for given in (("int8", None, 4, 1), ("binary", RANGES, 4, 2), ("float32", RANGES, 4, 2), ("int9", None, 4, 2)):
        raises("", quantization.chosen_ranges, *given)


RANGES = np.stack([np.arange(4) / np.float32(3), np.arange(4) + np.float32(1)]).astype(np.float32)
CONTENT = Quantization("int8", 4, RANGES).content()


def test_ranges_are_read_from_whatever_keeps_them_but_not_from_other_files(tmp_path):
    np.save(tmp_path / "ranges.npy", RANGES)
    np.save(tmp_path / "emb.npy", np.zeros((3, 4), np.int8))
    (tmp_path / "emb.npy.quantization.json").write_text(json.dumps(CONTENT))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".quantization.json").write_text(json.dumps({"plan": "x", **CONTENT, "seal": "y"}))
    schema = schema_of(4, np.dtype(np.int8), None, False, CONTENT)
    pyarrow.parquet.write_table(rows_table(schema, None, 0, np.zeros((3, 4), np.int8)), tmp_path / "emb.parquet")
    (tmp_path / "LOUD.PARQUET").write_bytes((tmp_path / "emb.parquet").read_bytes())
    (tmp_path / "LOUD.NPY").write_bytes((tmp_path / "ranges.npy").read_bytes())
    names = ("ranges.npy", "emb.npy", "emb.npy.quantization.json", "folder")
    for name in (*names, "emb.parquet", "LOUD.PARQUET", "LOUD.NPY"):
        np.testing.assert_array_equal(quantization.read_ranges(str(tmp_path / name), 4), RANGES)
        raises("of shape (2, 4); the embeddings need (2, 5)", quantization.read_ranges, str(tmp_path / name), 5)
    for rows in (np.zeros((3, 4), np.float32), np.zeros(4, np.float32)):
        np.save(tmp_path / "rows.npy", rows)
        raises("the embeddings need (2, D)", quantization.read_ranges, str(tmp_path / "rows.npy"))
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "emb.parquet")
    raises("has no ranges; they are kept", quantization.read_ranges, str(tmp_path / "emb.parquet"))
    for name, content, message in (
        ("a.npy", None, "no such file"),
        ("a.json", b"{", "not valid JSON"),
        ("a.json", json.dumps({**CONTENT, "ranges": [[1], [2]]}).encode(), "of shape (2, 1)"),
        ("a.json", json.dumps(Quantization("ubinary", 4).content()).encode(), "has no ranges, but ubinary"),
        ("a.parquet", b"PAR1", "cannot be read as ranges"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        for part in (name, message):
            raises(part, quantization.read_ranges, str(tmp_path / name))
