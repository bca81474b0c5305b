import json
import os
import resource

import numpy as np
import pyarrow.parquet
import pytest
from support.earlier import as_earlier
from support.readers import JSONL_READERS, READERS, rows_read

from simcse_jax.bulk import resumable
from simcse_jax.bulk.resumable import PartialEmbeddings, PartialPairs
from simcse_jax.errors import UserError

RECORD = {"anchor": "a é\u2028", "positive": "p", "negative": ["n", "m"], "row": 0, "negative_rows": [4, 2]}
RECORD |= {"positive_score": 0.5, "negative_scores": [0.25, 0.125]}
EMPTY = RECORD | {"row": 1, "negative": [], "negative_rows": [], "negative_scores": []}


def test_short_or_stale_files_are_refused(tmp_path):
    def partial():
        return PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})

    first = partial()
    first.append(np.ones((2, 3), np.float32), 0)
    whole = (tmp_path / ".emb.npy.partial").read_bytes()
    for left, message in ((b"", "damaged; remove it"), (whole[:-4], r"shorter than \.emb\.npy\.state\.json says")):
        (tmp_path / ".emb.npy.partial").write_bytes(left)
        with pytest.raises(UserError, match=message):
            partial().append(np.ones((2, 3), np.float32), 0)
    (tmp_path / ".emb.npy.partial").unlink()  # as the message says
    again = partial()
    assert again.done == 0
    again._open().close()
    assert not (tmp_path / ".emb.npy.state.json").exists()  # else a kill here would leave rows of zeros


def test_files_of_version_0_1_0_are_resumed(tmp_path):
    output, state = tmp_path / "emb.npy", tmp_path / ".emb.npy.state.json"
    now = {"--batch-size": 8, "--dtype": "bfloat16", "--output-dtype": "float16"}
    begun = PartialEmbeddings(output, 4, np.float16, now)
    begun.append(np.ones((2, 3), np.float16), 1)
    earlier = {"--batch-size": 8, "--compute-dtype": "bfloat16", "--dtype": "float16"}
    state.write_text(json.dumps(json.loads(state.read_text()) | {"about": earlier}))
    assert PartialEmbeddings(output, 4, np.float16, now).done == 2
    with pytest.raises(UserError, match="begun with another --dtype;"):
        PartialEmbeddings(output, 4, np.float16, now | {"--dtype": "float32"})
    with pytest.raises(UserError, match="begun with another --output-dtype;"):
        PartialEmbeddings(output, 4, np.float32, now | {"--output-dtype": "float32"})


@pytest.mark.parametrize(
    "changes",
    [
        *({"about": value} for value in (-1, None, [], "x", True)),
        *({field: value} for field in ("done", "cut") for value in (None, "2", -1, 5, 2.0, float("inf"), [], True)),
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(tmp_path, changes):
    begun = PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})
    begun.append(np.ones((2, 3), np.float32), 1)
    state = tmp_path / ".emb.npy.state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | changes))
    with pytest.raises(UserError, match=r"^.*/\.emb\.npy\.state\.json: damaged; remove it to start again$"):
        PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
def test_the_file_that_is_replaced_keeps_its_mode(tmp_path, kind):
    output = tmp_path / f"emb{kind}"
    output.write_text("old")
    output.chmod(0o640)
    partial = PartialEmbeddings(output, 2, np.float32, {})
    partial.append(np.ones((2, 3), np.float32), 0)
    partial.finish(iter(["a", "b"]), 0)
    assert output.stat().st_mode & 0o777 == 0o640 and os.listdir(tmp_path) == [output.name]


def test_a_kill_leaves_no_codes_with_the_ranges_of_others(tmp_path, monkeypatch):
    output, beside = tmp_path / "emb.npy", tmp_path / "emb.npy.quantization.json"
    real, seen = resumable.replace, []

    def replaced(new, path):
        seen.append((path.exists(), beside.exists()))  # what a kill would leave
        real(new, path)
        seen.append((path.exists(), beside.exists()))

    monkeypatch.setattr(resumable, "replace", replaced)
    for described in ({"precision": "int8"}, {"precision": "uint8"}, None):
        partial = PartialEmbeddings(output, 2, np.int8, {})
        partial.quantization = described
        partial.append(np.ones((2, 3), np.int8), 0)
        partial.finish(iter(["a", "b"]), 0)
        assert beside.exists() == (described is not None)
    assert seen == [(False, False), (True, False)] + [(True, False)] * 4
    assert os.listdir(tmp_path) == [output.name]


def test_codes_have_no_name_yet_when_their_ranges_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    partial = PartialEmbeddings(tmp_path / "emb.npy", 2, np.int8, {})
    partial.quantization = {"precision": "int8"}
    partial.append(np.ones((2, 3), np.int8), 0)
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"emb.npy: cannot be written: No space"):
        patch.setattr(os, "fsync", full)
        partial.finish(iter(["a", "b"]), 0)
    assert sorted(os.listdir(tmp_path)) == [".emb.npy.partial", ".emb.npy.state.json"]
    PartialEmbeddings(tmp_path / "emb.npy", 2, np.int8, {}).finish(iter(["a", "b"]), 0)
    assert sorted(os.listdir(tmp_path)) == ["emb.npy", "emb.npy.quantization.json"]


def test_nothing_is_left_of_a_parquet_file_that_could_not_be_written(tmp_path, monkeypatch):
    partial = PartialEmbeddings(tmp_path / "emb.parquet", 2, np.float32, {})
    partial.append(np.ones((2, 3), np.float32), 0)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"emb.parquet: cannot be written: No space"):
        patch.setattr(os, "fsync", full)
        partial.finish(iter(["a", "b"]), 0)
    assert sorted(os.listdir(tmp_path)) == [".emb.parquet.partial", ".emb.parquet.state.json"]
    PartialEmbeddings(tmp_path / "emb.parquet", 2, np.float32, {}).finish(iter(["a", "b"]), 0)
    assert os.listdir(tmp_path) == ["emb.parquet"]


@pytest.fixture
def small_disk():
    """Files of at most 300 bytes: what is beyond them cannot be written, also when a file is closed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_that_names_the_output(tmp_path, small_disk):
    with pytest.raises(UserError, match=r"emb\.npy: cannot be written: File too large"):
        PartialEmbeddings(tmp_path / "emb.npy", 99, np.float32, {}).append(np.ones((99, 9)), 0)
    with pytest.raises(UserError, match=r"out\.jsonl: cannot be written: File too large"):
        PartialPairs(tmp_path / "out.jsonl", {}).append([RECORD] * 9, 9, {"pairs": 9})


def test_records_are_those_given_in_either_kind_of_file(tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_jax.bulk.resumable.AT_ONCE", 1)
    for kind in ("jsonl", "parquet"):
        output = PartialPairs(tmp_path / f"out.{kind}", {"--pairs": "x"})
        output.append([RECORD], 2, {"pairs": 1})
        output.append([EMPTY], 1, {"pairs": 1})
        assert (output.done, output.counted) == (3, {"pairs": 2})
        output.finish(has_text=True, judged=False)
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").open(newline="\n")] == [RECORD, EMPTY]
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == [RECORD, EMPTY]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.parquet"]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_killed_one_goes_on_after_the_last_block_that_is_safe(tmp_path, earlier):
    path, about = tmp_path / "out.jsonl", {"--pairs": "x", "--seed": None}
    PartialPairs(path, about).append([RECORD], 2, {"pairs": 1})
    partial, state = tmp_path / ".out.jsonl.partial", tmp_path / ".out.jsonl.state.json"
    with partial.open("a") as file:
        file.write('{"anchor": "half a rec')
    for other in ({"--pairs": "y", "--seed": None}, about | {"--more": 1}):
        with pytest.raises(UserError, match=r"begun with another --(pairs|more)"):
            PartialPairs(path, other)
    with pytest.raises(UserError, match="begun with another --seed"):
        PartialPairs(path, {"--seed": 1}, whole=False)
    assert PartialPairs(path, {"--pairs": "x"}, whole=False).done == 2
    assert PartialPairs(tmp_path / "none.jsonl", about, whole=False).done == 0
    if earlier:
        as_earlier(tmp_path)
    again = PartialPairs(path, about)
    assert (again.done, again.counted) == (2, {"pairs": 1})
    again.append([EMPTY], 1, {"pairs": 1})
    again.finish(has_text=True, judged=False)
    assert [json.loads(line) for line in path.open(newline="\n")] == [RECORD, EMPTY]
    PartialPairs(path, about).append([RECORD], 2, {})
    whole = state.read_text()
    for text, message in (("{}", "damaged"), (whole.replace('"bytes": ', '"bytes": 9'), "shorter than")):
        state.write_text(text)
        with pytest.raises(UserError, match=message):
            PartialPairs(path, about)


@pytest.mark.parametrize(
    ("reader", "kind"), [*((name, "parquet") for name in READERS), *((name, "jsonl") for name in JSONL_READERS)]
)
def test_others_read_the_files_that_are_there_while_one_is_made(reader, kind, tmp_path):
    folder = tmp_path / "mined"
    folder.mkdir()
    for name in ("a", "b"):
        output = PartialPairs(folder / f"{name}.{kind}", {"--pairs": "x"})
        output.append([RECORD, RECORD | {"row": 1}], 2, {"pairs": 2})
        if name == "a":
            output.finish(has_text=True, judged=False)
    assert len(list(folder.iterdir())) == 3
    assert [row["row"] for row in rows_read(reader, folder, kind)] == [0, 1]
