import dataclasses

import pytest
from support import CONFIGS

from simcse_jax.config.loss_fields import is_widths
from simcse_jax.errors import UserError
from simcse_jax.models.config import MOST, EncoderConfig
from simcse_jax.models.model_types import MODEL_TYPES


def read(kind="bert", **changes):
    return EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "m/config.json")


def test_the_fields_of_a_file_and_a_sentence_may_fill_the_positions_after_the_padding_index():
    assert read() == EncoderConfig("bert", 40, 32, 2, 4, 48, 64, 2, 1e-12, "gelu", 0)
    assert (read("mpnet").type_vocab_size, read("mpnet").pad_token_id) == (0, 1)
    assert read(is_decoder=False, add_cross_attention=None, pruned_heads={}, use_cache=True) == read()
    assert {model_type: read(model_type).max_length for model_type in MODEL_TYPES} == dict.fromkeys(MODEL_TYPES, 64)
    assert read("roberta", pad_token_id=None).pad_token_id == 1


NAN, INF, ALBERT = float("nan"), float("inf"), CONFIGS["albert"]
WRONG = {  # by model type and field, which the refusal names, the values
    "bert": {
        "model_type": ("deberta-v2", ["bert"], None),
        "position_embedding_type": ("relative_key",),
        "layer_norm_eps": (None, "1e-12", True, NAN, INF, -1e-5),
        "hidden_size": ("wide", 0),
        "vocab_size": (INF, NAN, 40.0, 40.5, "40", True, None, [40], {}),
        "pad_token_id": (40,),
        "type_vocab_size": (0,),
        "num_hidden_layers": (0, 1025),
        **dict.fromkeys(("is_decoder", "add_cross_attention"), (True,)),
        **{"pruned_heads": ({"0": [1]},), "quantization_config": ({"load_in_8bit": True},)},
        "hidden_act": (["gelu"], None, "mish"),
        "max_position_embeddings": (2,),
        "num_attention_heads": (0,),
    },
    "ernie": {"use_task_id": (1,), "task_type_vocab_size": (-1, 10**99)},
    "electra": {"embedding_size": (-1, 10**99)},
    "albert": {"num_hidden_groups": (4, -1, 10**99), "inner_group_num": (2,)},
    "mpnet": {"pad_token_id": (0,), "relative_attention_num_buckets": (16,)},
    "distilbert": {"activation": ("mish",), "dim": ("32",), "n_layers": (0,), "hidden_dim": (1 << 30,)},
}


def test_unsupported_models_missing_fields_and_those_out_of_bounds_or_contradicting_others_are_refused():
    for field in MOST.keys() - WRONG["ernie"].keys() - WRONG["electra"].keys() - WRONG["albert"].keys():
        for value in (-1, 10**11, 10**99):
            said = rf"^m/config\.json: {field} is {str(value)[:50]}.*; it must be a whole number from [01] to "
            with pytest.raises(UserError, match=f"{said}{MOST[field]}$"):
                read(**{field: value})
    for kind, changes, named in (
        ("bert", {"model_type": "xlm_roberta"}, "model_type is .*; the nearest one is xlm-roberta"),
        ("bert", {"num_attention_heads": 5}, "hidden_size 32 is not divisible by 5 heads"),
        ("distilbert", {"n_heads": 5}, "dim 32 is not divisible by 5 heads"),
    ):
        with pytest.raises(UserError, match=rf"^m/config\.json: {named}"):
            read(kind, **changes)
    distilbert = (("distilbert", name) for name in ("dim", "n_layers", "n_heads", "hidden_dim", "vocab_size"))
    for kind, name in (("bert", "vocab_size"), *distilbert):
        fields = {field: value for field, value in CONFIGS[kind].items() if field != name}
        with pytest.raises(UserError, match=f": {name} is None; it must be"):
            EncoderConfig.from_hugging_face(fields, "m/config.json")
    for place, field, value in ((each, name, x) for each in WRONG for name, xs in WRONG[each].items() for x in xs):
        with pytest.raises(UserError, match=rf"^m/config\.json: {field} "):
            read(place, **{field: value})


def test_the_parts_of_each_model_type_and_distilbert_s_own_names():
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
    own = EncoderConfig("distilbert", 40, 32, 2, 4, 48, 64, 0, 1e-12, "gelu", 0, drops_attention_output=False)
    assert read("distilbert") == own
    # How the positions were initialized, and what transformers ignores for DistilBERT.
    assert read("distilbert", sinusoidal_pos_embds=True, layer_norm_eps=0.5, hidden_size=32) == read("distilbert")


def test_the_first_layers_are_kept_and_shared_ones_where_the_file_can_say_which_share_parameters():
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
    assert read().keep_layers(0) == read()
    assert read().keep_layers(1) == read(num_hidden_layers=1)
    for wrong in (-1, 3):
        with pytest.raises(UserError, match="the model has 2 layers"):
            read().keep_layers(wrong)


def test_a_projector_s_width_is_a_number_or_a_multiple_of_the_hidden_size():
    assert all(map(is_widths, ("4096", "D", "2D", "1", "2D,D", "4096,4096,9D")))
    assert not any(map(is_widths, ("", "0", "-1", "D2", "2d", "1.5D", "123456", "12D", "2 D", "D,", "D, D")))
