import json
import os

import numpy as np
import pyarrow.parquet
import pytest
from support.data import raises
from support.readers import JSONL_READERS, READERS, rows_read

from simcse_jax.bulk import resumable
from simcse_jax.bulk.resumable import PartialEmbeddings, PartialPairs

RECORD = {"anchor": "a é\u2028", "positive": "p", "negative": ["n", "m"], "row": 0, "negative_rows": [4, 2]}
RECORD |= {"positive_score": 0.5, "negative_scores": [0.25, 0.125]}
EMPTY = RECORD | {"row": 1, "negative": [], "negative_rows": [], "negative_scores": []}


def begun(output, rows=4, cut=1, dtype=np.float32, about=None, quantization=None):
    """Embeddings in the making, of which two rows are done."""
    partial = PartialEmbeddings(output, rows, dtype, about or {})
    partial.quantization = quantization
    partial.append(np.ones((2, 3), dtype), cut)
    return partial


def names_in(folder):
    return sorted(os.listdir(folder))


def test_short_stale_damaged_and_other_files_are_refused_and_those_of_version_0_1_0_resumed(tmp_path):
    output, partial = tmp_path / "emb.npy", tmp_path / ".emb.npy.partial"
    begun(output, about={"--a": 1})
    whole = partial.read_bytes()
    raises("begun with another --a;", PartialEmbeddings, output, 4, np.float32, {"--a": 2})
    for left, message in ((b"", "damaged"), (whole[:-4], "shorter than .emb.npy.state.json says")):
        partial.write_bytes(left)
        raises(f".emb.npy.partial: {message}", begun, output, about={"--a": 1})
    partial.unlink()  # as the message says
    again = PartialEmbeddings(output, 4, np.float32, {"--a": 1})
    assert again.done == 0
    again._open().close()
    assert not (tmp_path / ".emb.npy.state.json").exists()  # else a kill here would leave rows of zeros
    output = tmp_path / "old.npy"
    now = {"--batch-size": 8, "--dtype": "bfloat16", "--output-dtype": "float16", "--data": "x"}
    begun(output, dtype=np.float16, about=now)
    assert PartialEmbeddings(output, 4, np.float16, now).done == 2
    for name in ("--dtype", "--output-dtype"):
        raises(f"begun with another {name};", PartialEmbeddings, output, 4, np.float16, now | {name: "float32"})


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_an_output_is_whole_or_not_there_and_keeps_the_mode_of_the_one_that_it_replaces(tmp_path, kind, monkeypatch):
    """Codes have no name yet when their ranges cannot be written."""
    output, ranges = tmp_path / f"emb.{kind}", ["emb.npy.quantization.json"] * (kind == "npy")
    partial = begun(output, rows=2, dtype=np.int8, quantization={"precision": "int8"})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        raises(f"emb.{kind}: cannot be written: No space", partial.finish, iter(["a", "b"]), 0)
    assert names_in(tmp_path) == [f".emb.{kind}.partial", f".emb.{kind}.state.json"]
    output.write_text("old")
    output.chmod(0o640)
    resumed = PartialEmbeddings(output, 2, np.int8, {})
    assert (resumed.done, resumed.cut) == (2, 1)
    resumed.finish(iter(["a", "b"]), 0)
    assert names_in(tmp_path) == [output.name, *ranges] and output.stat().st_mode & 0o777 == 0o640


def test_a_kill_leaves_no_codes_with_the_ranges_of_others(tmp_path, monkeypatch):
    output, beside = tmp_path / "emb.npy", tmp_path / "emb.npy.quantization.json"
    real, seen = resumable.replace, []

    def replaced(new, path):
        seen.append((path.exists(), beside.exists()))  # what a kill would leave
        real(new, path)
        seen.append((path.exists(), beside.exists()))

    monkeypatch.setattr(resumable, "replace", replaced)
    for described in ({"precision": "int8"}, {"precision": "uint8"}, None):
        begun(output, rows=2, dtype=np.int8, quantization=described).finish(iter(["a", "b"]), 0)
        assert beside.exists() == (described is not None)
    assert seen == [(False, False), (True, False)] + [(True, False)] * 4
    assert names_in(tmp_path) == [output.name]


def records_in(path):
    return [json.loads(line) for line in path.open(newline="\n")]


def test_a_killed_one_goes_on_after_the_last_block_that_is_safe(tmp_path):
    path, about = tmp_path / "out.jsonl", {"--pairs": "x", "--seed": None}
    PartialPairs(path, about).append([RECORD], 2, {"pairs": 1})
    state = tmp_path / ".out.jsonl.state.json"
    with (tmp_path / ".out.jsonl.partial").open("a") as file:
        file.write('{"anchor": "half a rec')
    raises("begun with another --pairs", PartialPairs, path, {"--pairs": "y", "--seed": None})
    raises("begun with another --more", PartialPairs, path, about | {"--more": 1})
    raises("begun with another --seed", PartialPairs, path, {"--seed": 1}, whole=False)
    assert PartialPairs(path, {"--pairs": "x"}, whole=False).done == 2
    assert PartialPairs(tmp_path / "none.jsonl", about, whole=False).done == 0
    again = PartialPairs(path, about)
    assert (again.done, again.counted) == (2, {"pairs": 1})
    again.append([EMPTY], 1, {"pairs": 1})
    again.finish(has_text=True, judged=False)
    assert records_in(path) == [RECORD, EMPTY]
    PartialPairs(path, about).append([RECORD], 2, {})
    whole = state.read_text()
    for text, message in (
        ("{}", "begun with another --pairs"),
        (whole.replace('"bytes": ', '"bytes": 9'), "shorter than"),
    ):
        state.write_text(text)
        raises(message, PartialPairs, path, about)


def test_records_are_those_given_in_either_kind_of_file_and_others_read_them_while_one_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_jax.bulk.resumable.AT_ONCE", 1)
    for kind in ("jsonl", "parquet"):
        output = PartialPairs(tmp_path / f"out.{kind}", {"--pairs": "x"})
        output.append([RECORD], 2, {"pairs": 1})
        output.append([EMPTY], 1, {"pairs": 1})
        assert (output.done, output.counted) == (3, {"pairs": 2})
        output.finish(has_text=True, judged=False)
    assert records_in(tmp_path / "out.jsonl") == [RECORD, EMPTY]
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == [RECORD, EMPTY]
    assert names_in(tmp_path) == ["out.jsonl", "out.parquet"]
    for kind, readers in (("parquet", READERS), ("jsonl", JSONL_READERS)):
        folder = tmp_path / kind
        folder.mkdir()
        for name in ("a", "b"):
            output = PartialPairs(folder / f"{name}.{kind}", {"--pairs": "x"})
            output.append([RECORD, RECORD | {"row": 1}], 2, {"pairs": 2})
            if name == "a":
                output.finish(has_text=True, judged=False)
        assert len(names_in(folder)) == 3
        for reader in readers:
            assert [row["row"] for row in rows_read(reader, folder, kind)] == [0, 1], reader
