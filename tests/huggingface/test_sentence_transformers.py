import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.sentence_transformers import CLASSES, DEFAULTS, SETTINGS_FILE, Settings, read_settings
from simcse_jax.models.config import Dense, LayerNorm, Normalize

TANH = "torch.nn.modules.activation.Tanh"
MEAN, NORMALIZE, FILE = {"pooling_mode": "mean"}, ("2_Normalize", "Normalize"), "model.safetensors"


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
    save_file({"linear.weight": weight} | {f"linear.{name}": v for name, v in tensors.items()}, folder / path / FILE)
    return weight


def test_the_pooler_the_length_and_the_transformer_s_own_fields_are_read(bert):
    for pooling, pooler in (
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "avg"),
        ({"pooling_mode": "mean", "embedding_dimension": 32}, "avg"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}, "max"),
    ):
        write_modules(bert, pooling, NORMALIZE)
        (bert / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
        model = load(str(bert))
        assert choose_pooler(model, None) == (pooler, False) and model.max_length == 24
    write_modules(bert, MEAN)
    for fields, is_refused in (
        ({"transformer_task": "fill-mask"}, True),
        *(({"module_output_name": "sentence_embedding"}, True), ({"query_length": 32}, True)),
        ({"model_args": {"rope_scaling": {}}}, True),
        *(({"model_args": given}, False) for given in ({"attn_implementation": "eager"}, {"torch_dtype": "float16"})),
    ):
        (bert / "sentence_bert_config.json").write_text(json.dumps(fields))
        assert (next(iter(fields)) in load(str(bert)).refusal) == is_refused
    (bert / "adapter_config.json").write_text("{}")
    assert "an adapter" in load(str(bert)).refusal


def test_a_last_module_normalize_asks_for_unit_length(tiny_bert, tmp_path):
    for name, more, expected in (("plain", (), False), ("unit", (NORMALIZE, ("3_Dropout", "Dropout")), True)):
        folder = shutil.copytree(tiny_bert, tmp_path / name)
        write_modules(folder, MEAN, *more)
        assert load(str(folder)).normalize is expected and load(str(folder)).config.modules == ()
    assert load(str(tiny_bert)).normalize is False
    folder = shutil.copytree(tiny_bert, tmp_path / "between")
    write_dense(folder, "3_Dense", 32, 8, bias=np.ones(8, np.float32))
    dense = {"in_features": 32, "out_features": 8, "activation_function": "torch.nn.ReLU"}
    write_modules(folder, MEAN, NORMALIZE, ("3_Dense", "Dense", dense))
    model = load(str(folder))
    assert (model.normalize, model.config.modules) == (False, (Normalize(), Dense("ReLU", 8, inputs=32)))


def test_a_dense_tanh_module_is_a_head_and_any_other_a_module_after_it(bert):
    weight = write_dense(bert, "2_Dense", 32, 32, bias=np.arange(32, dtype=np.float32))
    fields = {"in_features": 32, "out_features": 32, "activation_function": TANH}
    write_modules(bert, {"pooling_mode_mean_tokens": True}, ("2_Dense", "Dense", fields))
    model = load(str(bert))
    np.testing.assert_array_equal(model.params["head.kernel"], weight.T)
    assert choose_pooler(model, None) == ("avg", True) and model.config.modules == ()
    assert choose_pooler(model, "avg_top2") == ("avg_top2", False)
    fields = {"in_features": 64, "out_features": 6, "bias": False, "activation_function": TANH}
    weight = write_dense(bert, "4_Dense", 64, 6)
    (bert / "3_LayerNorm").mkdir()
    norm = {"norm.weight": np.ones(6, np.float32), "norm.bias": np.zeros(6, np.float32)}
    save_file(norm, bert / "3_LayerNorm" / FILE)
    more = [("4_Dense", "Dense", fields), ("3_LayerNorm", "LayerNorm", {"dimension": 6})]
    write_modules(bert, {"pooling_mode": ["cls", "mean"], "include_prompt": False}, *more)
    model = load(str(bert))
    assert choose_pooler(model, None) == ("cls+avg", False) and not model.include_prompt
    assert model.config.modules == (Dense("Tanh", 6, inputs=64, bias=False), LayerNorm(inputs=6))
    own = {name: value for name, value in model.params.items() if name.startswith("modules.")}
    assert sorted(own) == [f"modules.{name}" for name in ("0.kernel", "1.bias", "1.scale")]
    np.testing.assert_array_equal(own["modules.0.kernel"], weight.T)
    assert model.besides == ["the modules Dense to 6, LayerNorm", "include_prompt=false"]


DENSE, WEIGHTED = {"in_features": 32, "out_features": 8, "activation_function": TANH}, "WeightedLayerPooling"
INPUT, OTHER = {"module_input_name": "token_embeddings"}, {"module_output_name": "x"}
UNSUPPORTED = [  # the pooling, other modules, and what the refusal names
    (MEAN, [("2", "my.custom.Pooling")], "modules.json: the module my.custom.Pooling"),
    (MEAN, [("2", "sentence_transformers.models.CNN")], "CNN"),
    (MEAN, [("2", "my.Dense", DENSE)], "my.Dense"),
    *((MEAN, [("2", kind, fields)], "only one Pooling") for kind, fields in (("Pooling", MEAN), (WEIGHTED, {}))),
    ({"pooling_mode": "median"}, [], "1_Pooling/config.json: the pooling median"),
    ({"pooling_mode_median_tokens": True}, [], "1_Pooling/config.json: the pooling median_tokens"),
    ({"pooling_mode": 3}, [], "1_Pooling/config.json: the pooling 3"),
    (MEAN, [("2", "Dense", DENSE | {"activation_function": "my.Tanh"})], "2/config.json: the activation 'my.Tanh'"),
    (MEAN, [("2", "Dense", DENSE | INPUT)], "module_input_name"),
    (MEAN, [("2", "Dense", DENSE | OTHER)], "module_output_name"),
]


@pytest.mark.parametrize(("pooling", "more", "message"), UNSUPPORTED)
def test_what_is_not_supported_is_refused_unless_a_pooler_is_named(bert, pooling, more, message):
    write_modules(bert, pooling, *more)
    model = load(str(bert))
    with pytest.raises(UserError, match=f"{message}.*; name a pooler"):
        choose_pooler(model, None)
    assert choose_pooler(model, "avg") == ("avg", False) and model.config.modules == ()
    assert model.besides[0].startswith("its own pooling (")


DAMAGED = [
    (MEAN | {"include_prompt": "no"}, [], "include_prompt"),
    (MEAN, [("2", "Dense", DENSE)], "2: no weights"),
    (MEAN, [("../2", "Normalize")], "'../2', is outside of the folder"),
]


@pytest.mark.parametrize(("pooling", "more", "message"), DAMAGED)
def test_damaged_modules_are_refused(bert, pooling, more, message):
    write_modules(bert, pooling, *more)
    with pytest.raises(UserError, match=message):
        load(str(bert))
    for listing in ([], [3], [{"path": "", "type": "sentence_transformers.models.BoW"}]):
        (bert / "modules.json").write_text(json.dumps(listing))
        with pytest.raises(UserError, match=r"modules\.json: "):
            load(str(bert))


def test_a_mean_of_layers_is_read_where_it_is_one_of_our_poolers(bert):
    write_modules(bert, MEAN, ("0_Weighted", WEIGHTED, {"layer_start": 0, "num_hidden_layers": 2}))
    listing = json.loads((bert / "modules.json").read_text())
    (bert / "modules.json").write_text(json.dumps([listing[0], listing[2], listing[1]]))
    for weights, hidden, pooler in (
        *(([0, 3, 3], True, "avg_top2"), ([2, 0, 2], True, "avg_static_last"), ([0, 0, 2], True, "avg")),
        *(([1, 1, 1], True, None), ([1, 1, 1], False, "avg")),  # without hidden states the module does nothing
    ):
        save_file({"layer_weights": np.array(weights, np.float32)}, bert / "0_Weighted" / FILE)
        edit_json(bert / "config.json", output_hidden_states=hidden)
        assert load(str(bert)).pooler == pooler


def test_all_settings_and_names_of_classes_are_read_with_defaults_and_damaged_fields_are_named(tmp_path):
    def read(fields):
        (tmp_path / SETTINGS_FILE).write_text(json.dumps(fields))
        return read_settings(tmp_path)

    assert read_settings(tmp_path) == read({}) == DEFAULTS
    assert DEFAULTS.prompts == {"query": "", "document": ""}
    fields = {"prompts": {"query": "q: ", "p": None}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    assert read(fields | {"truncate_dim": 8}) == Settings({"query": "q: ", "document": "", "p": ""}, "query", "dot", 8)
    other = {"model_type": "CrossEncoder", "prompts": {"query": "q: "}, "similarity_fn_name": "maxsim"}
    assert read(other) == Settings(model_type="CrossEncoder")  # which are not for embeddings
    damaged = {"prompts": (["a"], {"a": 1}), "default_prompt_name": ("q", ["q"]), "truncate_dim": (0, True)}
    damaged |= {"similarity_fn_name": ("maxsim", ["dot"])}
    for field, values in damaged.items():
        for value in values:
            with pytest.raises(UserError, match=f"{SETTINGS_FILE}: {field} is "):
                read({field: value})
    new = "sentence_transformers.sentence_transformer.modules.weighted_layer_pooling.WeightedLayerPooling"
    old = ("sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling.Pooling")
    for name in (new, *old, "sentence_transformers.base.modules.dense.Dense"):
        assert CLASSES[name] == name.rpartition(".")[2]
