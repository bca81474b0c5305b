import dataclasses
import re

import pytest
from support import CONFIGS

from simcse_jax.errors import UserError
from simcse_jax.models.config import BOUNDS, EncoderConfig, is_widths
from simcse_jax.models.model_types import MODEL_TYPES


def read(kind="bert", **changes):
    return EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "m/config.json")


def test_the_fields_of_a_file():
    assert read() == EncoderConfig("bert", 40, 32, 2, 4, 48, 64, 2, 1e-12, "gelu", 0)
    assert (read("mpnet").type_vocab_size, read("mpnet").pad_token_id) == (0, 1)
    assert tuple(CONFIGS) == tuple(MODEL_TYPES)


def test_a_sentence_may_fill_the_positions_after_the_padding_index():
    assert {model_type: read(model_type).max_length for model_type in MODEL_TYPES} == dict.fromkeys(MODEL_TYPES, 64)
    assert read("roberta", pad_token_id=None).pad_token_id == 1


ERNIE, ELECTRA, ALBERT = (CONFIGS[kind] for kind in ("ernie", "electra", "albert"))
HAS = {"task_type_vocab_size": ERNIE, "embedding_size": ELECTRA, "num_hidden_groups": ALBERT}  # fields of some types
WRONG = [
    (
        {"model_type": "gpt2"},
        "model_type is 'gpt2'; supported are bert, roberta, mpnet, distilbert, .*; the nearest in name is ",
    ),
    ({"model_type": "xlm_roberta"}, "model_type is 'xlm_roberta'; .*; the nearest in name is xlm-roberta"),
    ({"model_type": "deberta-v2"}, "model_type is 'deberta-v2'; .*; the nearest in name is "),
    (ERNIE | {"use_task_id": 1}, "use_task_id is 1, neither true nor false"),
    (ALBERT | {"num_hidden_groups": 4}, "num_hidden_groups is 4, more than 3 layers"),
    (ALBERT | {"inner_group_num": 2}, "inner_group_num is 2; for the type albert it must be 1"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'; only 'absolute' is"),
    ({"hidden_size": "wide"}, "hidden_size is 'wide', not a whole number"),
    ({"layer_norm_eps": None}, "layer_norm_eps is None, not a number"),
    ({"layer_norm_eps": "1e-12"}, "layer_norm_eps is '1e-12', not a number"),
    ({"layer_norm_eps": True}, "layer_norm_eps is True, not a number"),
    ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan; it must be between 0 and 1"),
    ({"layer_norm_eps": float("inf")}, "layer_norm_eps is inf; it must be between 0 and 1"),
    ({"layer_norm_eps": -1e-5}, "layer_norm_eps is -1e-05; it must be between 0 and 1"),
    *(
        (HAS.get(field, {}) | {field: value}, rf"{field} is {re.escape(repr(value)[:50])}.*; it must be {bound}")
        for field in BOUNDS
        for value, bound in ((-1, "[01] or more"), (10**11, "at most"), (10**99, "at most"))
    ),
    *(
        ({"vocab_size": value}, f"vocab_size is {re.escape(repr(value))}, not a whole number")
        for value in (float("inf"), float("nan"), 40.0, 40.5, "40", True, None, [40], {})
    ),
    ({"pad_token_id": 40}, "pad_token_id is 40, but vocab_size 40"),
    ({"type_vocab_size": 0}, "type_vocab_size is 0; it must be 1 or more"),
    ({"num_hidden_layers": 100_000}, "num_hidden_layers is 100000; it must be at most 1024"),
    ({"is_decoder": True}, "is_decoder is True; such a model is not supported"),
    ({"add_cross_attention": True}, "add_cross_attention is True; such"),
    ({"pruned_heads": {"0": [1]}}, "pruned_heads is .*; such"),
    ({"quantization_config": {"load_in_8bit": True}}, "quantization_config is .*; such"),
    ({"model_type": ["bert"]}, r"model_type is \['bert'\], not a name; supported are bert, .*gemma3_text$"),
    ({"model_type": None}, "model_type is None, not a name; supported are bert, .*gemma3_text$"),
    ({"hidden_act": ["gelu"]}, r"hidden_act \['gelu'\]"),
    ({"hidden_act": None}, "hidden_act None"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be 1 or more"),
    ({"hidden_size": 0}, "hidden_size is 0; it must be 1 or more"),
    ({"max_position_embeddings": 2}, "max_position_embeddings is 2, too few for a sentence"),
    ({"num_attention_heads": 5}, "hidden_size 32 is not divisible by 5 heads"),
    ({"hidden_act": "mish"}, "hidden_act 'mish' is not one of gelu, gelu_python, gelu_new, .*, silu, swish"),
]


def test_what_a_decoder_alone_has_is_no_matter_when_it_is_off():
    assert read(is_decoder=False, add_cross_attention=None, pruned_heads={}, use_cache=True) == read()


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_an_unsupported_model_is_refused_naming_the_file_and_the_field(changes, message):
    with pytest.raises(UserError, match=rf"^m/config\.json: {message}"):
        read(**changes)


def test_a_missing_field_and_an_mpnet_with_other_numbers():
    fields = {name: value for name, value in CONFIGS["bert"].items() if name != "vocab_size"}
    with pytest.raises(UserError, match="the field 'vocab_size' is missing"):
        EncoderConfig.from_hugging_face(fields, "m/config.json")
    for changes in ({"pad_token_id": 0}, {"relative_attention_num_buckets": 16}):
        with pytest.raises(UserError, match=f"{next(iter(changes))} is .*; for the type mpnet it must be"):
            read("mpnet", **changes)


def test_distilbert_s_own_names():
    own = EncoderConfig("distilbert", 40, 32, 2, 4, 48, 64, 0, 1e-12, "gelu", 0, drops_attention_output=False)
    assert read("distilbert") == own
    # How the positions were initialized, and what transformers ignores for DistilBERT.
    assert read("distilbert", sinusoidal_pos_embds=True, layer_norm_eps=0.5, hidden_size=32) == read("distilbert")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "mish"}, "activation 'mish' is not one of gelu"),
        ({"dim": "32"}, "dim is '32', not a whole number"),
        ({"n_layers": 0}, "n_layers is 0; it must be 1 or more"),
        ({"hidden_dim": 1 << 30}, "hidden_dim is 1073741824; it must be at most 1048576"),
        ({"n_heads": 5}, "dim 32 is not divisible by 5 heads"),
        ({"hidden_size": 64}, "dim is 32, but hidden_size 64; they must be the same"),
    ],
)
def test_a_wrong_distilbert_is_refused_by_its_own_names(changes, message):
    with pytest.raises(UserError, match=rf"^m/config\.json: {message}"):
        read("distilbert", **changes)


def test_a_distilbert_without_a_field():
    for name in ("dim", "n_layers", "n_heads", "hidden_dim", "vocab_size"):
        fields = {field: value for field, value in CONFIGS["distilbert"].items() if field != name}
        with pytest.raises(UserError, match=f"the field '{name}' is missing"):
            EncoderConfig.from_hugging_face(fields, "m/config.json")


def test_the_parts_of_each_model_type():
    for kind in ("xlm-roberta", "camembert"):
        assert dataclasses.replace(read(kind), model_type="roberta") == read("roberta")
    assert dataclasses.replace(read("ernie"), model_type="bert", task_types=0) == read() and read("ernie").task_types
    assert read("ernie", use_task_id=False, task_type_vocab_size=None).task_types == 0
    assert (read("electra").table_size, read("electra", embedding_size=32).embedding_size) == (16, None)
    assert read("albert", embedding_size=32).embedding_size == 32  # it has the dense layer in any case
    assert read("albert").groups == [0, 0, 1] and read("electra").groups == [0, 1]
    fields = {name: value for name, value in ALBERT.items() if name not in ("embedding_size", "hidden_act")}
    config = EncoderConfig.from_hugging_face(fields, "test")
    assert (config.embedding_size, config.hidden_act) == (128, "gelu_new")
    assert repr(read("electra")) == repr(read()).replace("bert", "electra")  # parts are no part of a fingerprint


def test_shared_layers_are_kept_where_the_file_can_say_which_share_parameters():
    albert = read("albert", num_hidden_layers=6)
    assert albert.groups == [0, 0, 0, 1, 1, 1]
    assert [albert.keep_layers(count).layer_groups for count in (0, 1, 3, 6)] == [2, 1, 1, 2]
    assert read("albert", num_hidden_layers=4).keep_layers(3).groups == [0, 0, 1]
    for count in (4, 5):
        if albert.groups[:count] != read("albert", num_hidden_layers=count).groups:
            with pytest.raises(UserError, match=f"num_layers={count}.*: the model's 6 layers share .* in 2 groups"):
                albert.keep_layers(count)
    with pytest.raises(UserError, match="keep whole groups"):
        albert.keep_layers(4)


def test_the_first_layers():
    assert read().keep_layers(0) == read()
    assert read().keep_layers(1) == read(num_hidden_layers=1)
    for wrong in (-1, 3):
        with pytest.raises(UserError, match="the model has 2 layers"):
            read().keep_layers(wrong)


def test_a_projector_s_width_is_a_number_or_a_multiple_of_the_hidden_size():
    assert all(map(is_widths, ("4096", "D", "2D", "1", "2D,D", "4096,4096,9D")))
    assert not any(map(is_widths, ("", "0", "-1", "D2", "2d", "1.5D", "123456", "12D", "2 D", "D,", "D, D")))
