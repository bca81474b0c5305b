import pytest
from support import CONFIGS, DECODERS

from simcse_jax.errors import UserError
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.decoders import both_ways


def read(kind, **changes):
    return EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "m/config.json")


def test_heads_share_keys_windows_end_with_the_query_or_lie_around_it_and_rotations_have_two_names():
    for kind in DECODERS:
        config = read(kind, head_dim=10, query_pre_attn_scalar=10)
        assert (config.head_size, config.heads_width, config.qkv_widths) == (10, 40, (40, 20, 20))
        assert read(kind, num_key_value_heads=None).qkv_widths[1] == read(kind).heads_width
        assert not config.embedding_norm and config.rms_norm and config.causal == (kind != "gemma3_text")
    assert (read("mistral").local_layers, read("mistral").window) == ((0, 1), 4)
    assert read("mistral", sliding_window=None).local_layers == ()
    both = read("mistral", is_causal=False)
    assert (both.causal, both.window, both_ways("mistral")) == (False, 5, {"is_causal": False})
    assert not read("gemma3_text", **{"use_bidirectional_attention": False} | both_ways("gemma3_text")).causal
    assert [read(kind).tied_head for kind in DECODERS] == [False] * 4 + [True]
    assert read("llama", tie_word_embeddings=True).tied_head
    assert read("qwen3", sliding_window=9).local_layers == ()
    asked = {"use_sliding_window": True, "sliding_window": 9}
    assert read("qwen3", max_window_layers=1, **asked).local_layers == (1,)
    assert read("qwen2", layer_types=["sliding_attention", "full_attention"], **asked).local_layers == (0,)
    assert (read("gemma3_text").local_layers, read("gemma3_text").window) == ((0,), 2)
    assert read("gemma3_text", use_bidirectional_attention=False).window == 3
    assert read("gemma3_text", layer_types=None, num_hidden_layers=7).local_layers == (0, 1, 2, 3, 4, 6)
    linear = {"rope_type": "linear", "factor": 2.0}
    newer = read("llama", rope_parameters=linear | {"rope_theta": 500.0})
    assert newer == read("llama", rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0})
    assert (newer.rotary_base, newer.rotary_scaling.factor) == (500.0, 2.0)
    ropes = {"full_attention": linear | {"rope_theta": 7e5}, "sliding_attention": {"rope_theta": 300.0}}
    gemma = read("gemma3_text", rope_parameters=ropes)
    assert gemma == read("gemma3_text", rope_theta=7e5, rope_local_base_freq=300, rope_scaling=linear)
    assert (gemma.rotary_base, gemma.local_rotary_base) == (7e5, 300.0)
    assert read("qwen3").rotary_base == 1e4 and read("gemma3_text").rotary_base == 1e6
    length = "original_max_position_embeddings"
    for scaling in (YARN, LLAMA3):
        for place, own in (({length: 32}, {}), ({}, {length: 32}), ({length: 9}, {length: 32})):
            assert read("llama", rope_scaling=scaling | place, **own).rotary_scaling.length == 32


YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WRONG = [  # the refusal names the last field, or what follows
    ("qwen3", {"auto_map": {"AutoModel": "x.Y"}}),
    ("qwen2", {"is_causal": 0}),
    ("gemma3_text", {"is_causal": False}),
    ("llama", {"tie_word_embeddings": "no"}),
    *(("qwen3", {"head_dim": value}) for value in (7, "8")),
    ("llama", {"num_key_value_heads": 0}),
    ("mistral", {"sliding_window": 0}),
    ("mistral", {"rms_norm_eps": -1}),
    ("qwen2", {"use_sliding_window": True, "layer_types": ["x", "y"]}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": "x"}),
    ("gemma3_text", {"layer_types": ["full_attention"]}),
    ("gemma3_text", {"query_pre_attn_scalar": 5}),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}),
    ("gemma3_text", {"use_bidirectional_attention": 1}),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters is"),
    ("gemma3_text", {"rope_parameters": 3}),
    ("gemma3_text", {"rope_parameters": {"sliding_attention": YARN}}, "rope_parameters.sliding_attention"),
    *(("llama", {"rope_theta": value}) for value in (0.5, "x")),
    ("llama", {"rope_scaling": "x"}),
    *(("llama", {"rope_scaling": {"rope_type": x}}, "rope_scaling.rope_type") for x in ("longrope", ["yarn"])),
    ("llama", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor is None"),
    ("llama", {"rope_scaling": YARN | {"mscale": 1.0}}, "rope_scaling is .*mscale"),
]


def test_an_unsupported_decoder_is_refused_naming_the_field_and_gemma_s_scale_may_be_missing():
    for kind, changes, *named in WRONG:
        with pytest.raises(UserError, match=rf"^m/config\.json: {(named or [*changes])[-1]}"):
            read(kind, **changes)
    config = {name: value for name, value in CONFIGS["gemma3_text"].items() if name != "query_pre_attn_scalar"}
    assert EncoderConfig.from_hugging_face(config | {"head_dim": 256}, "m").head_size == 256
    with pytest.raises(UserError, match="query_pre_attn_scalar is 256; only 12 is supported"):
        EncoderConfig.from_hugging_face(config, "m")
