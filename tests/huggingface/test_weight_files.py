import json
import pickle
import shutil
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.models import same
from support.pickles import Call, Persistent, storage, tensor, whole

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.torch_pickle import LIMIT
from simcse_jax.huggingface.weight_files import LEGACY_MAGIC, read_safetensors, read_torch_file, read_weights


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


class Print:
    """Pickles as a call of `print`; a malicious file would call something worse."""

    def __reduce__(self):
        return print, ("code was run",)


def test_a_file_that_asks_to_run_code_is_refused(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": Print()}))
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*builtins\.print"):
        read_torch_file(tmp_path / "pytorch_model.bin")
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"no pickle", b"PK\x03\x04 cut off", pickle.dumps({"a": 1})])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(UserError, match="not a readable PyTorch file"):
        read_torch_file(tmp_path / "pytorch_model.bin")


FLOATS = storage("FloatStorage", "0", 6)
ZIPPED = np.arange(6, dtype="<f4").tobytes()


def write_zip(path, content, compression=zipfile.ZIP_STORED, **files):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", whole(content))
        for name, data in ({"0": ZIPPED} | files).items():
            archive.writestr("archive/byteorder" if name == "byteorder" else f"archive/data/{name}", data)


def write_legacy(path, content, system=None, keys=("0",), count=6, data=ZIPPED):
    parts = [LEGACY_MAGIC, 1001, {"little_endian": True} if system is None else system, content, list(keys)]
    path.write_bytes(b"".join(map(whole, parts)) + count.to_bytes(8, "little") + data)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_tensors_are_views_of_their_storages(tmp_path, write):
    content = {"a": tensor(FLOATS, 0, (2, 3), (3, 1)), "b": tensor(FLOATS, 1, (2,), (3,)), "epoch": 3}
    content["far"] = b"Nr\xff\xff\xff\xff"  # put aside at a place that takes `pickle` 64 GB
    write(tmp_path / "a.bin", content | {"none": tensor(FLOATS, 9, (0, 5), (5, 1)), "one": tensor(FLOATS, 5, (), ())})
    read = read_torch_file(tmp_path / "a.bin")
    assert {name: value.tolist() for name, value in read.items()} == {
        "a": [[0, 1, 2], [3, 4, 5]],
        "b": [1, 4],
        "none": [],
        "one": 5,
    }
    write(tmp_path / "b.bin", {"state_dict": content})
    assert list(read_torch_file(tmp_path / "b.bin")) == ["a", "b"]


@pytest.mark.parametrize("write", [write_zip, write_legacy])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (tensor(FLOATS, 0, (7,), (1,)), "the tensor a reaches beyond its storage"),
        (tensor(FLOATS, 6, (1,), (1,)), "reaches beyond"),
        (tensor(FLOATS, 0, (2, 2), (5, 1)), "reaches beyond"),
        (tensor(FLOATS, 2**62, (2,), (1,)), "reaches beyond"),
        (tensor(FLOATS, 0, (2,), (2**62,)), "reaches beyond"),
        (tensor(FLOATS, 0, (2, 2**63), (2**62, 1)), "reaches beyond"),
        (tensor(FLOATS, 0, (10**6, 10**6), (0, 0)), "has more elements than its storage"),
        (tensor(FLOATS, 5, (6,), (-1,)), "negative size or stride"),
        (tensor(FLOATS, 0, (-1,), (1,)), "negative size or stride"),
        (tensor(FLOATS, 0, (-2, -3), (3, 1)), "negative size or stride"),
        (tensor(FLOATS, -1, (1,), (1,)), "its pickle is damaged"),
        (tensor(FLOATS, 0, ("6",), (1,)), "negative size or stride"),
        (tensor(FLOATS, 0, (6,), ()), "its pickle is damaged"),
        (tensor("FloatStorage", 0, (6,), (1,)), "its pickle is damaged"),
        (tensor(FLOATS, 0, (6,), (1,), False, None, {"neg": True}), "negated or conjugated"),
        (tensor(storage("FloatStorage", "0", 2**40), 0, (2,), (1,)), "have 4398046511104 bytes, the file only"),
        (tensor(storage("FloatStorage", "0", -6), 0, (2,), (1,)), "its pickle is damaged"),
        (tensor(storage("FloatStorage", "0", 5), 0, (2,), (1,)), "does not have the 5 elements"),
        (tensor(storage("QInt8Storage", "0", 6), 0, (2,), (1,)), "it asks for torch.QInt8Storage; only plain tensors"),
        (tensor(storage("FloatStorage", "1", 6), 0, (6,), (1,)), "no item named|list of storages is damaged"),
        (tensor(Persistent("storage", 1, "0", "cpu", 6), 0, (6,), (1,)), "its pickle is damaged"),
        (tensor(Persistent("storage"), 0, (6,), (1,)), "its pickle is damaged"),
        (tensor(storage("FloatStorage", "0", 6, ("1", 0, 6)), 0, (6,), (1,)), "a view of another"),
        (Call("torch._utils", "_rebuild_qtensor", (FLOATS, 0)), "asks for torch._utils._rebuild_qtensor"),
        (tensor(Persistent("storage", b"N)" + b"\x85" * 200_000, "0", "cpu", 6), 0, (6,), (1,)), "damaged"),
        (Call("collections", "OrderedDict", (3,)), "its pickle is damaged"),
        (b"\x8f", "the instruction EMPTY_SET"),  # of a set
        (b"(" * 9, "its pickle is damaged"),
        (b"Nh\x07", "its pickle is damaged"),  # a value that was never put aside
        (b"N)" + b"\x85" * 200_000 + b"N", "damaged"),  # a deep tuple as a key; hashing it would overflow the stack
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_what_would_be_read_from_elsewhere_is_refused(tmp_path, write, value, message):
    path = tmp_path / "pytorch_model.bin"
    write(path, {"a": value})
    with pytest.raises(UserError, match=rf"^{path}: not a readable PyTorch file \(.*({message})"):
        read_torch_file(path)


@pytest.mark.parametrize("content", [[], 3, None, "a"], ids=str)
def test_a_file_without_a_dictionary_is_refused(tmp_path, content):
    write_zip(tmp_path / "a.bin", content)
    with pytest.raises(UserError, match="it holds no dictionary of tensors"):
        read_torch_file(tmp_path / "a.bin")


def test_damaged_archives_are_refused(tmp_path):
    content, path = {"a": tensor(FLOATS, 0, (6,), (1,))}, tmp_path / "a.bin"
    for files, message in (
        ({"0": ZIPPED[:-1]}, "storage 0 does not have the 6 elements"),
        ({"byteorder": b"big"}, "not little-endian"),
        ({"byteorder": b"little" * 9}, "byteorder has 54 bytes, more than 6"),
    ):
        write_zip(path, content, **files)
        with pytest.raises(UserError, match=message):
            read_torch_file(path)
    write_zip(path, content)
    path.write_bytes(path.read_bytes().replace(ZIPPED, ZIPPED[::-1]))
    with pytest.raises(UserError, match="CRC"):
        read_torch_file(path)
    write_legacy(path, content, system={"little_endian": False})
    with pytest.raises(UserError, match="not little-endian"):
        read_torch_file(path)
    write_legacy(path, content, data=ZIPPED[:-1])
    with pytest.raises(UserError, match="the file ends early"):
        read_torch_file(path)


def test_what_a_zip_file_would_inflate_to_is_not_read(tmp_path, monkeypatch):
    path, count = tmp_path / "a.bin", 1 << 20
    content = {"a": tensor(storage("FloatStorage", "0", count), 0, (count,), (1,))}
    write_zip(path, content, zipfile.ZIP_DEFLATED, **{"0": bytes(4 * count)})
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda self, name: self.open(name).read(LIMIT))
    with pytest.raises(UserError, match="its tensors have 4194304 bytes, the file only"):
        read_torch_file(path)


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_reads_files_written_by_pytorch(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    base = torch.randn(6, 8)
    tensors = {
        "plain": base,
        "view": base[1:4, ::2],  # shares its storage, with strides
        "transposed": base.T,
        "half": base.half(),
        "brain": base.bfloat16(),
        "parameter": torch.nn.Parameter(base * 2),
        "integers": torch.arange(5),
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 4),
    }
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    read = read_torch_file(tmp_path / "pytorch_model.bin")
    assert set(read) == set(tensors)
    for name, written in tensors.items():
        np.testing.assert_array_equal(read[name], written.detach().float().numpy(), err_msg=name)
        assert read[name].shape == tuple(written.shape)


@pytest.mark.slow
def test_a_folder_with_pytorch_weights_whole_or_sharded(tiny_bert, tmp_path):
    torch = pytest.importorskip("torch")
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    tensors = {name: torch.tensor(value) for name, value in load_file(folder / "model.safetensors").items()}
    expected = load(str(folder)).params
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    for name, value in load(str(folder)).params.items():
        np.testing.assert_array_equal(value, expected[name])
    (folder / "pytorch_model.bin").unlink()
    names = sorted(tensors)
    shards = {"pytorch_model-1.bin": names[:9], "pytorch_model-2.bin": names[9:]}
    for shard, part in shards.items():
        torch.save({name: tensors[name] for name in part}, folder / shard)
    index = {"weight_map": {name: shard for shard, part in shards.items() for name in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    for name, value in load(str(folder)).params.items():
        np.testing.assert_array_equal(value, expected[name])
