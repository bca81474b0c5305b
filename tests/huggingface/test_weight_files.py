import json
import pickle
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.layouts import as_pytorch
from support.models import same
from support.pickles import Call, Persistent, parts, storage, tensor, whole

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.weight_files import LEGACY_MAGIC, read_safetensors, read_torch_file, read_weights

WRITERS = {"model.safetensors": save_file, "pytorch_model.bin": lambda x, path: path.write_bytes(as_pytorch(x))}


@pytest.mark.parametrize(("name", "write"), WRITERS.items())
def test_weights_whole_or_sharded(tiny_bert, bert, name, write):
    folder = bert
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    write(tensors, folder / name)
    same(load(str(folder)), load(str(tiny_bert)))
    (folder / name).unlink()
    shards = {f"a-{name}": sorted(tensors)[::2], f"b-{name}": sorted(tensors)[1::2]}
    for shard, part in shards.items():
        write({name: tensors[name] for name in part}, folder / shard)
    index = {"weight_map": {name: shard for shard, part in shards.items() for name in part}}
    (folder / f"{name}.index.json").write_text(json.dumps(index))
    same(load(str(folder)), load(str(tiny_bert)))
    (folder / f"b-{name}").unlink()
    with pytest.raises(UserError, match=f"b-{name} is missing"):
        load(str(folder))


def test_safetensors_take_precedence_over_a_pickle(tmp_path):
    with pytest.raises(UserError, match=r"no weights; it must have one of model\.safetensors, "):
        read_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never read")
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    tensors, path = read_weights(tmp_path)
    assert path.name == "model.safetensors" and tensors["a"].tolist() == [1, 1]


def write_header(path, header, size):
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(size))


def test_a_header_that_does_not_fit_a_file_of_another_kind_and_types_that_numpy_lacks_are_refused(tmp_path):
    headers = (("F32", [2**40], [0, 8], 8), ("F32", [2**63, 2**63], [0, 8], 8), ("F32", [0, 2**62], [0, 0], 0))
    headers += (("F32", [-2], [0, 8], 8), ("F32", [2], [8, 0], 8), ("F32", [2], [0, 8], 4), ("F33", [2], [0, 8], 8))
    others = (b"", b"\0" * 8, b"\xff" * 8, b"\0\0\1\0\0\0\0\0" + b"[" * 65536)
    for given in (*headers, *others):
        if isinstance(given, bytes):
            (tmp_path / "a").write_bytes(given)
        else:
            dtype, shape, offsets, size = given
            write_header(tmp_path / "a", {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, size)
        with pytest.raises(UserError, match="/a: truncated or damaged"):
            read_safetensors(tmp_path / "a")
    header = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    for kind in ("F8_E4M3", "F8_E5M2", "F8_E8M0"):
        write_header(tmp_path / "a", header | {"b": {"dtype": kind, "shape": [2], "data_offsets": [4, 6]}}, 6)
        with pytest.raises(UserError, match=rf"/a: has weights of the type '{kind}'"):
            read_safetensors(tmp_path / "a")


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_a_damaged_list_of_shards_is_refused(tmp_path, kind):
    paths = ["../x.safetensors", "/etc/passwd", "", "..", 3, None]
    indexes = [({}, "weight_map"), *(({"weight_map": value}, "weight_map") for value in (3, ["a"]))]
    indexes += [({"weight_map": {"a": path}}, "not the name of a file in the folder|is missing") for path in paths]
    indexes += [({"weight_map": {"a": "x" * 300}}, "File name too long"), ({"weight_map": {"a": "x"}}, "x is missing")]
    for index, message in indexes:
        (tmp_path / f"{kind}.index.json").write_text(json.dumps(index))
        with pytest.raises(UserError, match=message):
            read_weights(tmp_path)


FLOATS = storage("FloatStorage", "0", 6)
# What NumPy takes for a type of objects: a dictionary with an attribute.
OBJECTS = parts(Call("collections", "OrderedDict", ([["names", ["a"]], ["formats", ["O"]]],)))
OBJECTS += parts({"itemsize": 8}) + b"b"
ZIPPED = np.arange(6, dtype="<f4").tobytes()


def write_zip(path, content, compression=zipfile.ZIP_STORED, **files):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", whole(content))
        for name, data in ({"0": ZIPPED} | files).items():
            archive.writestr("archive/byteorder" if name == "byteorder" else f"archive/data/{name}", data)


def write_legacy(path, content, keys=("0",), count=6, data=ZIPPED):
    parts = [LEGACY_MAGIC, 1001, {"little_endian": True}, content, list(keys)]
    path.write_bytes(b"".join(map(whole, parts)) + count.to_bytes(8, "little") + data)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_files_that_ask_to_run_code_other_files_and_those_without_a_dictionary_are_refused(write, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    made = f"open({str(tmp_path / 'pwned')!r}, 'w')"
    for module, name, *arguments in (
        ("os", "system", f"touch {tmp_path / 'pwned'}"),
        ("builtins", "eval", made),
        ("builtins", "getattr", Call("collections", "OrderedDict"), "fromkeys"),
        ("torch", "load", str(path)),
        ("torch._utils", "_rebuild_tensor_v2.__globals__", "x"),
        ("numpy", "load", str(path)),
    ):
        for content in ({"weight": Call(module, name, tuple(arguments))}, Call(module, name, tuple(arguments))):
            write(path, content)
            with pytest.raises(UserError, match=rf"^{path}: not .* \(it asks for {module}\.{name};"):
                read_torch_file(path)
    assert not (tmp_path / "pwned").exists()
    for content in (b"", b"no pickle", b"PK\x03\x04 cut off", pickle.dumps({"a": 1}), b"\x80\x02"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a readable PyTorch file"):
            read_torch_file(path)
    for content in ([], 3, None, "a"):
        write(path, content)
        with pytest.raises(UserError, match="not a readable PyTorch file"):
            read_torch_file(path)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_tensors_are_views_of_their_storages_and_what_would_be_read_from_elsewhere_is_refused(tmp_path, write):
    parameter = Call("torch._utils", "_rebuild_parameter", (floats(1, (2,), (3,)), True, None))
    content = {"a": floats(0, (2, 3), (3, 1)), "b": parameter, "epoch": 3}
    write(tmp_path / "a.bin", content | {"none": floats(0, (0, 5), (5, 1)), "one": floats(5, (), ())})
    read = read_torch_file(tmp_path / "a.bin")
    expected = {"a": [[0, 1, 2], [3, 4, 5]], "b": [1, 4], "none": [], "one": 5}
    assert {name: value.tolist() for name, value in read.items()} == expected
    write(tmp_path / "b.bin", {"state_dict": content})
    assert list(read_torch_file(tmp_path / "b.bin")) == ["a", "b"]
    path = tmp_path / "pytorch_model.bin"
    for value in (  # a tensor that reaches beyond its storage, has more elements, or a storage that is not there
        *(floats(0, (7,), (1,)), floats(6, (1,), (1,)), floats(0, (2, 2), (5, 1)), floats(2**62, (2,), (1,))),
        *(floats(0, (2,), (2**62,)), floats(0, (2, 2**63), (2**62, 1)), floats(0, (10**6, 10**6), (0, 0))),
        *(floats(0, (5,), (2**60,)), floats(5, (2,), (-1,))),  # the first overflows in NumPy
        tensor((OBJECTS, "0"), 0, (3,), (1,)),
        *(floats(4, (6,), (-1,)), floats(0, (-1,), (1,)), floats(0, ("6",), (1,)), floats(-1, (1,), (1,))),
        *(of("1", 6), of("../data.pkl", 6), of("0", 6, ("1", 0, 6)), floats(0, (6,), ())),
        *(tensor(storage("QInt8Storage", "0", 6), 0, (6,), (1,)), tensor("FloatStorage", 0, (6,), (1,))),
        *(tensor(Persistent(*fields), 0, (6,), (1,)) for fields in (("storage", 1, "0", "cpu", 6), ("storage",))),
        *(Call("collections", "OrderedDict", (3,)), b"(" * 9, b"Nh\x07"),  # a value that was never put aside
    ):
        write(path, {"a": value})
        with pytest.raises(UserError, match=rf"^{path}: not a readable PyTorch file \("):
            read_torch_file(path)


def floats(*arguments):
    return tensor(FLOATS, *arguments)


def of(*fields):
    return tensor(storage("FloatStorage", *fields), 0, (6,), (1,))


def test_damaged_archives_are_refused_and_what_a_zip_file_would_inflate_to_is_not_read(tmp_path, monkeypatch):
    content, path = {"a": floats(0, (6,), (1,))}, tmp_path / "a.bin"

    def flip():
        write_zip(path, content)
        path.write_bytes(path.read_bytes().replace(ZIPPED, ZIPPED[::-1]))

    for make, message in (
        (lambda: write_zip(path, content, **{"0": ZIPPED[:-1]}), "beyond its storage 0"),
        (lambda: write_zip(path, content, byteorder=b"big"), "not little-endian"),
        (flip, "CRC"),
        (lambda: write_legacy(path, content, data=ZIPPED[:-1]), "beyond its storage 0"),
        (lambda: write_legacy(path, content, count=2**61), "not a readable PyTorch file"),
    ):
        make()
        with pytest.raises(UserError, match=message):
            read_torch_file(path)
    write_zip(path, content, zipfile.ZIP_DEFLATED, **{"0": bytes(1 << 22)})
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    with pytest.raises(UserError, match="more bytes than the file"):
        read_torch_file(path)


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_reads_files_written_by_pytorch(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    base = torch.randn(6, 8)
    tensors = {"plain": base, "view": base[1:4, ::2], "transposed": base.T, "parameter": torch.nn.Parameter(base * 2)}
    tensors |= {"half": base.half(), "brain": base.bfloat16(), "integers": torch.arange(5)}
    tensors |= {"scalar": torch.tensor(3.0), "empty": torch.zeros(0, 4)}
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    read = read_torch_file(tmp_path / "pytorch_model.bin")
    assert set(read) == set(tensors)
    for name, written in tensors.items():
        np.testing.assert_array_equal(read[name], written.detach().float().numpy(), err_msg=name)
        assert read[name].shape == tuple(written.shape)
