import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.models import same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.weight_files import read_weights


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
