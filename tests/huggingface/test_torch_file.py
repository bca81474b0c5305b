import json
import pickle
import shutil
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.torch_file import read_torch_file


class Call:
    """Pickles as a call of `print`; a malicious file would call something worse."""

    def __reduce__(self):
        return print, ("code was run",)


def test_a_file_that_asks_to_run_code_is_refused(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": Call()}))
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*builtins\.print"):
        read_torch_file(tmp_path / "pytorch_model.bin")
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"no pickle", b"PK\x03\x04 cut off", pickle.dumps({"a": 1})])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(UserError, match="not a readable PyTorch file"):
        read_torch_file(tmp_path / "pytorch_model.bin")


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
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor.detach().float().numpy(), err_msg=name)
        assert read[name].shape == tuple(tensor.shape)


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
