import pytest
from support import CONFIGS

from simcse_jax.errors import UserError
from simcse_jax.models.config import MODEL_TYPES, EncoderConfig


def read(kind="bert", **changes):
    return EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "m/config.json")


def test_the_fields_of_a_file():
    assert read() == EncoderConfig("bert", 40, 32, 2, 4, 48, 64, 2, 1e-12, "gelu", 0)
    assert (read("mpnet").type_vocab_size, read("mpnet").pad_token_id) == (0, 1)
    assert tuple(CONFIGS) == MODEL_TYPES


def test_a_sentence_may_fill_the_positions_after_the_padding_index():
    assert {model_type: read(model_type).max_length for model_type in MODEL_TYPES} == dict.fromkeys(MODEL_TYPES, 64)
    assert read("roberta", pad_token_id=None).pad_token_id == 1


WRONG = [
    ({"model_type": "gpt2"}, "model_type is 'gpt2'; supported are bert, roberta, mpnet"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'; only 'absolute' is"),
    ({"hidden_size": "wide"}, "hidden_size is 'wide', not a number"),
    ({"layer_norm_eps": None}, "layer_norm_eps is None, not a number"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be 1 or more"),
    ({"hidden_size": 0}, "hidden_size is 0; it must be 1 or more"),
    ({"max_position_embeddings": 2}, "max_position_embeddings is 2, too few for a sentence"),
    ({"num_attention_heads": 5}, "hidden_size 32 is not divisible by 5 heads"),
    ({"hidden_act": "mish"}, "hidden_act 'mish' is not one of gelu, gelu_new, gelu_pytorch_tanh, relu, silu"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_an_unsupported_model_is_refused_naming_the_file_and_the_field(changes, message):
    with pytest.raises(UserError, match=rf"^m/config\.json: {message}"):
        read(**changes)


def test_a_missing_field_and_an_mpnet_with_other_numbers():
    fields = {name: value for name, value in CONFIGS["bert"].items() if name != "vocab_size"}
    with pytest.raises(UserError, match="the field 'vocab_size' is missing"):
        EncoderConfig.from_hugging_face(fields, "m/config.json")
    for changes in ({"pad_token_id": 0}, {"relative_attention_num_buckets": 16}):
        with pytest.raises(UserError, match=f"{next(iter(changes))} is .*; for MPNet it must be"):
            read("mpnet", **changes)


def test_the_first_layers():
    assert read().keep_layers(0) == read()
    assert read().keep_layers(1) == read(num_hidden_layers=1)
    for wrong in (-1, 3):
        with pytest.raises(UserError, match="the model has 2 layers"):
            read().keep_layers(wrong)
