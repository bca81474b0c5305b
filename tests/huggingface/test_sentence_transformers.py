import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load


def write_modules(folder, pooling, *more):
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *more]
    listing = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
    (folder / "modules.json").write_text(json.dumps(listing))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
    ("pooling", "pooler"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "avg"),
        ({"pooling_mode": "mean", "embedding_dimension": 32}, "avg"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "max", "embedding_dimension": 32}, "max"),
    ],
)
def test_the_pooler_comes_from_sentence_transformers_files(folder, pooling, pooler):
    write_modules(folder, pooling, ("2_Normalize", "Normalize"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
    model = load(str(folder))
    assert choose_pooler(model, None) == (pooler, False)
    assert model.max_length == 24


def test_a_last_module_normalize_asks_for_unit_length(tiny_folder, tmp_path):
    pooling, normalize = {"pooling_mode_mean_tokens": True}, ("2_Normalize", "Normalize")
    for name, more, expected in (("plain", (), False), ("unit", (normalize,), True)):
        folder = shutil.copytree(tiny_folder, tmp_path / name)
        write_modules(folder, pooling, *more)
        assert load(str(folder)).normalize is expected
    assert load(str(tiny_folder)).normalize is False
    folder = shutil.copytree(tiny_folder, tmp_path / "between")
    write_modules(folder, pooling, normalize, ("3_Other", "Pooling"))
    (folder / "3_Other").mkdir()
    (folder / "3_Other" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(UserError, match="a normalization before the last module"):
        choose_pooler(load(str(folder)), None)


def test_a_dense_tanh_module_is_a_head(folder):
    write_modules(folder, {"pooling_mode_mean_tokens": True}, ("2_Dense", "Dense"))
    (folder / "2_Dense").mkdir()
    fields = {"in_features": 32, "out_features": 32, "activation_function": "torch.nn.modules.activation.Tanh"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(fields))
    weight = np.arange(1024, dtype=np.float32).reshape(32, 32)
    save_file({"linear.weight": weight, "linear.bias": weight[0]}, folder / "2_Dense" / "model.safetensors")
    model = load(str(folder))
    np.testing.assert_array_equal(model.params["head.kernel"], weight.T)
    assert choose_pooler(model, None) == ("avg", True)
    assert choose_pooler(model, "avg_top2") == ("avg_top2", False)


def test_an_unsupported_module_is_named(folder):
    write_modules(folder, {"pooling_mode_mean_tokens": True}, ("0_WeightedLayerPooling", "WeightedLayerPooling"))
    with pytest.raises(UserError, match="the module WeightedLayerPooling"):
        choose_pooler(load(str(folder)), None)


def test_an_unsupported_pooling_is_named(folder):
    write_modules(folder, {"pooling_mode_weightedmean_tokens": True})
    model = load(str(folder))
    with pytest.raises(UserError, match="weightedmean_tokens"):
        choose_pooler(model, None)
    assert choose_pooler(model, "avg") == ("avg", False)
