import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.sentence_transformers import (
    CLASSES,
    DEFAULTS,
    SETTINGS_FILE,
    Settings,
    describe,
    read_settings,
)
from simcse_jax.index import similarity
from simcse_jax.models.config import SIMILARITIES, Cut, Dense, LayerNorm, Normalize

TANH = "torch.nn.modules.activation.Tanh"


@pytest.fixture
def bert(tiny_bert, tmp_path):
    """A copy for a test to change."""
    return shutil.copytree(tiny_bert, tmp_path / "model")


def write_modules(folder, pooling, *more):
    """A pooling module and others: a path, a class or the last word of one of sentence-transformers', its config."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling", pooling), *more]
    listing = []
    for path, kind, *config in modules:
        listing.append({"path": path, "type": kind if "." in kind else f"sentence_transformers.models.{kind}"})
        (folder / path).mkdir(exist_ok=True)
        for fields in config:
            (folder / path / "config.json").write_text(json.dumps(fields))
    (folder / "modules.json").write_text(json.dumps(listing))


def write_dense(folder, path, before, after, **tensors):
    (folder / path).mkdir()
    weight = np.arange(before * after, dtype=np.float32).reshape(after, before)
    tensors = {name: value for name, value in tensors.items() if value is not None}
    save_file({"linear.weight": weight} | {f"linear.{name}": v for name, v in tensors.items()}, folder / path / FILE)
    return weight


FILE = "model.safetensors"


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


def test_a_last_module_normalize_asks_for_unit_length(tiny_bert, tmp_path):
    pooling, normalize = {"pooling_mode_mean_tokens": True}, ("2_Normalize", "Normalize")
    for name, more, expected in (("plain", (), False), ("unit", (normalize, ("3_Dropout", "Dropout")), True)):
        folder = shutil.copytree(tiny_bert, tmp_path / name)
        write_modules(folder, pooling, *more)
        assert load(str(folder)).normalize is expected and load(str(folder)).config.modules == ()
    assert load(str(tiny_bert)).normalize is False
    folder = shutil.copytree(tiny_bert, tmp_path / "between")
    write_dense(folder, "3_Dense", 32, 8, bias=np.ones(8, np.float32))
    dense = {"in_features": 32, "out_features": 8, "activation_function": "torch.nn.ReLU"}
    write_modules(folder, pooling, normalize, ("3_Dense", "Dense", dense))
    model = load(str(folder))
    assert (model.normalize, model.config.modules) == (False, (Normalize(), Dense("ReLU", 8, inputs=32)))


def test_a_dense_tanh_module_is_a_head(folder):
    bias = np.arange(32, dtype=np.float32)
    weight = write_dense(folder, "2_Dense", 32, 32, bias=bias)
    fields = {"in_features": 32, "out_features": 32, "activation_function": TANH}
    write_modules(folder, {"pooling_mode_mean_tokens": True}, ("2_Dense", "Dense", fields))
    model = load(str(folder))
    np.testing.assert_array_equal(model.params["head.kernel"], weight.T)
    assert choose_pooler(model, None) == ("avg", True) and model.config.modules == ()
    assert choose_pooler(model, "avg_top2") == ("avg_top2", False)


def test_any_other_dense_layer_is_a_module_after_the_head(bert):
    fields = {"in_features": 64, "out_features": 6, "bias": False, "activation_function": TANH}
    weight = write_dense(bert, "2_Dense", 64, 6)
    (bert / "3_LayerNorm").mkdir()
    save_file(
        {"norm.weight": np.ones(6, np.float32), "norm.bias": np.zeros(6, np.float32)}, bert / "3_LayerNorm" / FILE
    )
    more = [("2_Dense", "Dense", fields), ("3_LayerNorm", "LayerNorm", {"dimension": 6})]
    write_modules(bert, {"pooling_mode": ["cls", "mean"], "include_prompt": False}, *more)
    model = load(str(bert))
    assert choose_pooler(model, None) == ("cls+avg", False) and not model.include_prompt
    assert model.config.modules == (Dense("Tanh", 6, inputs=64, bias=False), LayerNorm(inputs=6))
    own = {name: value for name, value in model.params.items() if name.startswith("modules.")}
    assert sorted(own) == [f"modules.{name}" for name in ("0.kernel", "1.bias", "1.scale")]
    np.testing.assert_array_equal(own["modules.0.kernel"], weight.T)
    assert model.besides == ["the modules Dense to 6, LayerNorm", "include_prompt=false"]


MEAN = {"pooling_mode": "mean"}
DENSE = {"in_features": 32, "out_features": 8, "activation_function": TANH}


@pytest.mark.parametrize(
    ("pooling", "more", "message"),
    [
        (MEAN, [("2", "my.custom.Pooling")], "modules.json: the module my.custom.Pooling is not supported"),
        (MEAN, [("2", "sentence_transformers.models.CNN")], "CNN is supported only directly after Transformer"),
        (MEAN, [("2", "my.Dense", DENSE)], "the module my.Dense is not supported"),
        (MEAN, [("2", "Pooling", MEAN)], "only one Pooling directly after Transformer"),
        (MEAN, [("2", "WeightedLayerPooling", {})], "only one Pooling directly after Transformer"),
        ({"pooling_mode": "median"}, [], "1_Pooling/config.json: the pooling median is not supported"),
        ({"pooling_mode_median_tokens": True}, [], "the pooling pooling_mode_median_tokens is not supported"),
        (MEAN, [("2", "Dense", DENSE | {"activation_function": "my.Tanh"})], "2/config.json: the activation 'my.Tanh'"),
        (MEAN, [("2", "Dense", DENSE | {"module_input_name": "token_embeddings"})], "module_input_name is 'token_emb"),
        (MEAN, [("2", "Normalize", {"module_output_name": "x"})], "module_output_name is 'x'"),
    ],
)
def test_what_is_not_supported_is_refused_unless_a_pooler_is_named(bert, pooling, more, message):
    write_modules(bert, pooling, *more)
    model = load(str(bert))
    with pytest.raises(UserError, match=f"{message}.*; name a pooler"):
        choose_pooler(model, None)
    assert choose_pooler(model, "avg") == ("avg", False) and model.config.modules == ()
    assert model.besides[0].startswith("its own pooling (")


@pytest.mark.parametrize(
    ("pooling", "more", "message"),
    [
        ({"pooling_mode": 3}, [], "1_Pooling/config.json: pooling_mode is 3"),
        ({"pooling_mode": []}, [], r"1_Pooling/config.json: pooling_mode is \[\]"),
        (MEAN | {"include_prompt": "no"}, [], "include_prompt is 'no'"),
        (MEAN, [("2", "Dense", DENSE | {"in_features": 31})], "damaged: 31 to 8 elements, where embeddings have 32"),
        (MEAN, [("2", "Dense", DENSE | {"out_features": "8"})], "damaged: 32 to '8'"),
        (MEAN, [("2", "Dense", DENSE)], "2: no weights"),
        (MEAN, [("../2", "Normalize")], "the path of module 2, '../2', is outside of the folder"),
    ],
)
def test_damaged_modules_are_refused(bert, pooling, more, message):
    write_modules(bert, pooling, *more)
    with pytest.raises(UserError, match=message):
        load(str(bert))


def test_a_damaged_list_is_refused(bert):
    for listing, message in (
        ([], "lists no modules"),
        ([3], "module 0 has no type and path"),
        ([{"path": "", "type": "sentence_transformers.models.BoW"}], "its first module is .*BoW; only Transformer"),
    ):
        (bert / "modules.json").write_text(json.dumps(listing))
        with pytest.raises(UserError, match=message):
            load(str(bert))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        ({"module_output_name": "sentence_embedding"}, "module_output_name is 'sentence_embedding'"),
        ({"query_length": 32}, "query_length is 32"),
        ({"model_args": {"torch_dtype": "float16"}}, "model_args is .*float16"),
        ({"model_args": {"attn_implementation": "eager"}}, None),
        ({"model_args": {"torch_dtype": "float32"}}, None),
    ],
)
def test_the_transformer_s_own_fields_are_read(bert, fields, message):
    write_modules(bert, MEAN)
    (bert / "sentence_bert_config.json").write_text(json.dumps(fields))
    refusal = load(str(bert)).refusal
    assert (not refusal) if message is None else message.partition(" is ")[0] in refusal


def test_an_adapter_is_refused(bert):
    write_modules(bert, MEAN)
    (bert / "adapter_config.json").write_text("{}")
    assert "an adapter" in load(str(bert)).refusal


@pytest.mark.parametrize(
    ("weights", "hidden", "pooler"),
    [
        ([0, 3, 3], True, "avg_top2"),
        ([2, 0, 2], True, "avg_static_last"),
        ([0, 0, 2], True, "avg"),
        ([1, 1, 1], True, None),
        ([1, 1, 1], False, "avg"),  # without hidden states the module does nothing
    ],
)
def test_a_mean_of_layers_is_read_where_it_is_one_of_our_poolers(bert, weights, hidden, pooler):
    listing = [("", "Transformer"), ("1_WeightedLayerPooling", "WeightedLayerPooling"), ("2_Pooling", "Pooling")]
    listing = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in listing]
    (bert / "modules.json").write_text(json.dumps(listing))
    for path, fields in ((listing[1]["path"], {"layer_start": 0, "num_hidden_layers": 2}), ("2_Pooling", MEAN)):
        (bert / path).mkdir()
        (bert / path / "config.json").write_text(json.dumps(fields))
    save_file({"layer_weights": np.array(weights, np.float32)}, bert / listing[1]["path"] / FILE)
    edit_json(bert / "config.json", output_hidden_states=hidden)
    assert load(str(bert)).pooler == pooler


def test_all_names_of_a_class_are_known():
    for name in (
        "sentence_transformers.models.Transformer",
        "sentence_transformers.models.Pooling.Pooling",
        "sentence_transformers.base.modules.dense.Dense",
        "sentence_transformers.sentence_transformer.modules.weighted_layer_pooling.WeightedLayerPooling",
    ):
        assert CLASSES[name] == name.rpartition(".")[2]


def test_modules_are_described_in_a_few_words():
    assert describe([Dense("Tanh", 3, inputs=4), Normalize(), Cut(2)]) == "Dense to 3, Normalize, Cut to 2"


def write(folder, fields):
    (folder / SETTINGS_FILE).write_text(json.dumps(fields))
    return folder


def test_a_folder_without_the_file_has_the_defaults(tmp_path):
    assert read_settings(tmp_path) == read_settings(write(tmp_path, {})) == DEFAULTS
    assert DEFAULTS.prompts == {"query": "", "document": ""}


def test_all_fields_are_read(tmp_path):
    fields = {"prompts": {"query": "q: ", "p": None}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    expected = Settings({"query": "q: ", "document": "", "p": ""}, "query", "dot", 8)
    assert read_settings(write(tmp_path, fields | {"truncate_dim": 8})) == expected


def test_the_prompts_of_another_kind_of_model_are_not_for_embeddings(tmp_path):
    fields = {"model_type": "CrossEncoder", "prompts": {"query": "q: "}, "similarity_fn_name": "maxsim"}
    assert read_settings(write(tmp_path, fields)) == Settings(model_type="CrossEncoder")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompts": ["a"]}, "prompts is"),
        ({"prompts": {"a": 1}}, "prompts is"),
        ({"default_prompt_name": "q"}, "default_prompt_name is 'q', but its prompts are query, document"),
        ({"default_prompt_name": ["q"]}, "default_prompt_name is"),
        ({"similarity_fn_name": "maxsim"}, "similarity_fn_name is 'maxsim'; supported are cosine"),
        ({"similarity_fn_name": ["dot"]}, "similarity_fn_name is"),
        ({"truncate_dim": 0}, "truncate_dim is 0; it must be a whole number"),
        ({"truncate_dim": True}, "truncate_dim is True"),
        ({"model_type": 3}, "model_type is 3, not a name"),
    ],
)
def test_damaged_fields_are_named(tmp_path, fields, message):
    with pytest.raises(UserError, match=f"{SETTINGS_FILE}: {message}"):
        read_settings(write(tmp_path, fields))


def test_the_names_are_those_that_search_knows():
    assert SIMILARITIES == similarity.SIMILARITIES
