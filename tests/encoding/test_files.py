import json
import os

import numpy as np
import pytest

from simcse_jax.encoding import files
from simcse_jax.encoding.files import PartialEmbeddings
from simcse_jax.errors import UserError


def test_short_or_stale_files_are_refused(tmp_path):
    def partial():
        return PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})

    first = partial()
    first.append(np.ones((2, 3), np.float32), 0)
    first._file.close()
    whole = (tmp_path / ".emb.npy.partial").read_bytes()
    for left, message in ((b"", "damaged; remove it"), (whole[:-4], r"shorter than \.emb\.npy\.state\.json says")):
        (tmp_path / ".emb.npy.partial").write_bytes(left)
        with pytest.raises(UserError, match=message):
            partial().append(np.ones((2, 3), np.float32), 0)
    (tmp_path / ".emb.npy.partial").unlink()  # as the message says
    again = partial()
    assert again.done == 0
    again._open(3).close()
    assert not (tmp_path / ".emb.npy.state.json").exists()  # else a kill here would leave rows of zeros


def test_files_of_version_0_1_0_are_resumed(tmp_path):
    output, state = tmp_path / "emb.npy", tmp_path / ".emb.npy.state.json"
    now = {"--batch-size": 8, "--dtype": "bfloat16", "--output-dtype": "float16"}
    begun = PartialEmbeddings(output, 4, np.float16, now)
    begun.append(np.ones((2, 3), np.float16), 1)
    begun._file.close()
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
    begun._file.close()
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
    real, seen = files.replace, []

    def replaced(new, path):
        seen.append((path.exists(), beside.exists()))  # what a kill would leave
        real(new, path)
        seen.append((path.exists(), beside.exists()))

    monkeypatch.setattr(files, "replace", replaced)
    for described in ({"precision": "int8"}, {"precision": "uint8"}, None):
        partial = PartialEmbeddings(output, 2, np.int8, {})
        partial.quantization = described
        partial.append(np.ones((2, 3), np.int8), 0)
        partial.finish(iter(["a", "b"]), 0)
        assert beside.exists() == (described is not None)
    assert seen == [(False, False), (True, False)] + [(True, False)] * 4
    assert os.listdir(tmp_path) == [output.name]


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
