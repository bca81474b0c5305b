import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.models import same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.weight_files import read_safetensors, read_weights


def test_sharded_safetensors(tiny_folder, folder):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, part in shards.items():
        save_file({name: tensors[name] for name in part}, folder / shard)
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: shard for shard, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    same(load(str(folder)), load(str(tiny_folder)))
    (folder / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"b\.safetensors is missing"):
        load(str(folder))


def test_safetensors_take_precedence_over_a_pickle(tmp_path):
    with pytest.raises(UserError, match=r"no weights; it must have one of model\.safetensors, "):
        read_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never read")
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    tensors, path = read_weights(tmp_path)
    assert path.name == "model.safetensors" and tensors["a"].tolist() == [1, 1]
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"pytorch_model\.bin: not a readable PyTorch file"):
        read_weights(tmp_path)


def write_header(path, header, size):
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(size))


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "F8_E8M0"])
def test_types_that_numpy_lacks_are_named(tmp_path, kind):
    header = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    write_header(tmp_path / "a", header | {"b": {"dtype": kind, "shape": [2], "data_offsets": [4, 6]}}, 6)
    with pytest.raises(UserError, match=rf"/a: 'b' has the type {kind}; convert the weights to F32"):
        read_safetensors(tmp_path / "a")


@pytest.mark.parametrize(
    ("dtype", "shape", "offsets", "size"),
    [
        ("F32", [2**40], [0, 8], 8),
        ("F32", [2**63, 2**63], [0, 8], 8),
        ("F32", [0, 2**62], [0, 0], 0),
        ("F32", [-2], [0, 8], 8),
        ("F32", [2], [8, 0], 8),
        ("F32", [2], [0, 8], 4),
        ("F33", [2], [0, 8], 8),
    ],
)
def test_a_header_that_does_not_fit_the_file_is_refused(tmp_path, dtype, shape, offsets, size):
    write_header(tmp_path / "a", {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, size)
    with pytest.raises(UserError, match="/a: truncated or damaged"):
        read_safetensors(tmp_path / "a")


@pytest.mark.parametrize("content", [b"", b"\0" * 8, b"\xff" * 8, b"\0\0\1\0\0\0\0\0" + b"[" * 65536], ids=len)
def test_other_files_are_no_safetensors(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match="/a: truncated or damaged"):
        read_safetensors(tmp_path / "a")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no 'weight_map'"),
        ({"weight_map": 3}, "has no 'weight_map'"),
        ({"weight_map": ["a"]}, "has no 'weight_map'"),
        ({"weight_map": {"a": 3}}, "has no 'weight_map'"),
        ({"weight_map": {"a": ["b"]}}, "has no 'weight_map'"),
        ({"weight_map": {"a": None, "b": "c"}}, "has no 'weight_map'"),
        ({"weight_map": {"a": "../x.safetensors"}}, "not the name of a file in the folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "not the name of a file in the folder"),
        ({"weight_map": {"a": ""}}, "not the name of a file in the folder"),
        ({"weight_map": {"a": ".."}}, "not the name of a file in the folder|is missing"),
        ({"weight_map": {"a": "a\0b"}}, "not the name of a file in the folder"),
        ({"weight_map": {"a": "x" * 300}}, "File name too long"),
        ({"weight_map": {"a": "x"}}, "its shard x is missing"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_a_damaged_list_of_shards_is_refused(tmp_path, index, message, kind):
    (tmp_path / f"{kind}.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=message):
        read_weights(tmp_path)
