import dataclasses
import re

import pytest
from support import CONFIGS, ROOT

from simcse_jax.errors import UserError
from simcse_jax.huggingface.weight_names import NAMES
from simcse_jax.models.config import MOST, EncoderConfig
from simcse_jax.models.model_types import MODEL_TYPES, for_transformers


def test_every_model_type_has_its_names_a_tiny_model_and_a_place_in_the_documentation():
    assert list(MODEL_TYPES) == list(NAMES) == list(CONFIGS)
    fields = {field.name for field in dataclasses.fields(EncoderConfig)}
    assert all(kind.parts.keys() <= fields and set(kind.sizes) <= MOST.keys() for kind in MODEL_TYPES.values())
    text = (ROOT / "docs" / "background" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("| model type |", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"`([a-z0-9_-]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", table, re.M)))) == set(MODEL_TYPES)


MODERN, NOMIC = CONFIGS["modernbert"], CONFIGS["nomic_bert"]
# As in the configs of Nomic's repositories.
OWN = {
    **{"model_type": "nomic_bert", "vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48},
    **{"n_positions": 64, "max_trained_positions": 16, "rotary_scaling_factor": None, "type_vocab_size": 2},
    **{"activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "prenorm": False, "use_rms_norm": False},
    **{"qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "parallel_block": False},
    **{"rotary_emb_base": 100, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
    **{"rotary_emb_scale_base": None, "causal": False, "auto_map": {"AutoModel": "elsewhere--modeling.NomicBertModel"}},
}


def read(config, **changes):
    return EncoderConfig.from_hugging_face(config | changes, "config.json")


def test_older_and_newer_fields_of_modernbert_and_nomic_s_own_layout_say_the_same():
    older = read(MODERN, num_hidden_layers=4, global_attn_every_n_layers=2)
    assert (older.rotary_base, older.local_rotary_base, older.window) == (400.0, 100.0, 2)
    assert older.local_layers == (1, 3) and (older.layer_norm_eps, older.hidden_act) == (1e-5, "gelu")
    newer = {name: value for name, value in MODERN.items() if not name.endswith("_rope_theta")}
    kinds = ["full_attention", "sliding_attention"] * 2
    ropes = {"full_attention": {"rope_theta": 400.0}, "sliding_attention": {"rope_theta": 100, "rope_type": "default"}}
    assert read(newer, num_hidden_layers=4, layer_types=kinds, rope_parameters=ropes) == older
    usual = read({name: value for name, value in newer.items() if name not in ("local_attention", "norm_eps")})
    assert (usual.rotary_base, usual.local_rotary_base, usual.window) == (160000.0, 10000.0, 64)
    assert usual.local_layers == (1,) and usual.max_length == 64 and usual.pre_norm and usual.gated
    biased = read(MODERN, attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True)
    assert biased.attention_bias and biased.feed_forward_bias and biased.norm_bias and biased.language_model_bias
    assert not any((usual.attention_bias, usual.feed_forward_bias, usual.norm_bias, usual.language_model_bias))
    unread = {name: value for name, value in MODERN.items() if name != "norm_eps"} | {"layer_norm_eps": 0.5}
    assert read(unread).layer_norm_eps == 1e-5  # as in transformers
    assert read(MODERN, classifier_activation="relu").language_model_act == "relu"
    # Fields that transformers reads in other models alone are no matter.
    assert read(MODERN, sliding_window=2, partial_rotary_factor=1) == read(MODERN)
    for config in (MODERN, NOMIC):
        assert read(config, position_embedding_type="sans_pos", tie_word_embeddings=False) == read(config)
    assert read(OWN) == read(NOMIC)
    assert read(OWN).rotary_base == 100.0 and read(NOMIC | {"rope_parameters": None}).rotary_base == 1000.0
    assert read(OWN, rotary_scaling_factor=2.0).max_length == 16  # beyond it the rotation depends on the batch
    both = OWN | NOMIC | {"max_position_embeddings": 16, "rotary_emb_base": 100}
    assert read(both) == read(NOMIC) and for_transformers(both, 2, "config.json")["max_position_embeddings"] == 64
    written = for_transformers(OWN, 2, "config.json")
    assert "auto_map" not in written and "n_embd" not in written and read(written) == read(OWN)
    assert written["rope_parameters"] == {"rope_theta": 100.0, "rope_type": "default"}
    # An export of the first layers names their kinds alone.
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert for_transformers(MODERN | {"layer_types": kinds}, 2, "config.json")["layer_types"] == kinds[:2]
    assert for_transformers(MODERN, 1, "config.json") == MODERN


ROPES = {name: value for name, value in MODERN.items() if not name.endswith("_rope_theta")}
BAD = [  # the refusal names the first field, or what follows
    *((MODERN, {"local_attention": value}) for value in (0, 1e3)),
    (MODERN, {"global_attn_every_n_layers": 0}),
    *((MODERN, {"layer_types": kinds}) for kinds in (["full_attention"], ["full_attention", "none"])),
    (MODERN, {"global_rope_theta": 0.5}),
    *((MODERN, {"local_rope_theta": value}) for value in (None, float("nan"))),
    (MODERN, {"rope_parameters": 3}),
    (MODERN, {"rope_parameters": {"full_attention": {"rope_theta": True}}}, "rope_parameters.full_attention.rope_th"),
    (MODERN, {"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}, "rope_parameters.sliding_attention is"),
    (ROPES, {"rope_parameters": {"rope_theta": 50000.0, "factor": 4.0}}, "rope_parameters is"),
    (MODERN, {"rope_scaling": {"factor": 2}}),
    *((each, {"partial_rotary_factor": 0.5}) for each in (MODERN, NOMIC)),
    *((each, {"rotary_emb_fraction": 0.5}) for each in (NOMIC, OWN)),
    (MODERN, {"num_hidden_layers": 10**15}),
    (MODERN, {"num_attention_heads": 32}, "hidden_size 32 is not divisible by 32 heads of an even size"),
    (MODERN, {"norm_bias": "no"}),
    *((MODERN, {field: "tanh"}) for field in ("hidden_activation", "classifier_activation")),
    (NOMIC, {"rope_parameters": {"rope_theta": 1e13}}, "rope_parameters.rope_theta"),
    (NOMIC, {"rope_parameters": {"factor": 2.0}}, "rope_parameters is"),
    (OWN, {"n_head": 32}, "n_embd 32 is not divisible by 32 heads of an even size"),
    (OWN, {"activation_function": "gelu"}),
    *((OWN, {field: True}) for field in ("prenorm", "qkv_proj_bias")),
    (OWN, {"num_experts": 8}),
    (OWN, {"rotary_emb_base": "big"}),
    (OWN, {"max_trained_positions": None, "rotary_scaling_factor": 2}),
    (OWN, {"n_layer": "two"}),
]


def test_what_is_out_of_range_or_another_network_is_named():
    for config, changes, *named in BAD:
        with pytest.raises(UserError, match=f"^config.json: {re.escape((named or [*changes])[0])}"):
            read(config, **changes)
