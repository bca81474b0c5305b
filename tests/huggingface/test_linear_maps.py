"""The linear maps that LoRA may change, as PEFT names them."""

import pytest
from support import CONFIGS

from simcse_jax.errors import UserError
from simcse_jax.huggingface.linear_maps import linear_maps, module_of, sites
from simcse_jax.models.config import EncoderConfig, Site


def chosen(kind, *targets):
    encoder = EncoderConfig.from_hugging_face(CONFIGS[kind], "test")
    known = {site: name for name, site in linear_maps(kind).items()}
    return [known[site] for site in sites(encoder, targets, "field")]


def test_a_target_is_the_end_of_a_name():
    assert chosen("bert", "query", "value") == ["attention.self.query", "attention.self.value"]
    assert chosen("bert", "output.dense") == ["attention.output.dense", "output.dense"]  # as in PEFT
    assert chosen("bert", "dense") == ["attention.output.dense", "intermediate.dense", "output.dense"]
    assert chosen("modernbert", "Wo", "Wqkv") == ["attn.Wqkv", "attn.Wo", "mlp.Wo"]
    assert chosen("bert", "all-linear") == list(linear_maps("bert"))


@pytest.mark.parametrize(
    ("kind", "queries_and_values"),
    [
        ("roberta", ["attention.self.query", "attention.self.value"]),
        ("mpnet", ["attention.attn.q", "attention.attn.v"]),
        ("distilbert", ["attention.q_lin", "attention.v_lin"]),
        ("albert", ["attention.query", "attention.value"]),
        ("modernbert", ["attn.Wqkv"]),
        ("nomic_bert", ["self_attn.q_proj", "self_attn.v_proj"]),
    ],
)
def test_without_targets_they_are_those_of_queries_and_values(kind, queries_and_values):
    assert chosen(kind) == queries_and_values


@pytest.mark.parametrize(
    ("kind", "target", "nearest"),
    [
        ("bert", "quer", "query"),
        ("modernbert", "query", "Wqkv"),
        ("bert", "0.query", "query"),
        ("bert", "all", "value"),
    ],
)
def test_a_target_that_does_not_exist_is_refused(kind, target, nearest):
    with pytest.raises(UserError, match=f"field: '{target}' is no linear map .* the nearest one is {nearest};"):
        chosen(kind, "all-linear", target)


def test_names_of_modules():
    assert module_of("albert", 1, Site("output")) == "encoder.albert_layer_groups.1.albert_layers.0.ffn_output"
    assert module_of("nomic_bert", 0, Site("intermediate", 1, 2)) == "layers.0.mlp.up_proj"
    assert module_of("bert", 0, Site("qkv", 2, 3)) == "encoder.layer.0.attention.self.value"


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_transformers_has_these_modules_and_no_others_in_its_layers(kind):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**CONFIGS[kind]))
    stack = module_of(kind, 0, Site("output")).partition(".0.")[0]
    found = {name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear) and f"{stack}.0" in name}
    assert found == {module_of(kind, 0, site) for site in linear_maps(kind).values()}
