import pytest
from support import CONFIGS

from simcse_jax.errors import UserError
from simcse_jax.huggingface.published import PUBLISHED, encoder_config
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build


def test_other_shapes_are_read_from_their_config(tiny_folder):
    assert encoder_config(str(tiny_folder)) == EncoderConfig.from_hugging_face(CONFIGS[tiny_folder.name], "test")


def test_published_shapes_are_known():
    _, params = build(PUBLISHED["bert-base-uncased"], with_head=False)
    # BERT-base's 109,482,240 without its pooler.
    assert sum(value.size for value in params.values()) == 109_482_240 - 768 * 769
    _, params = build(PUBLISHED["roberta-large"], with_head=False)
    assert sum(value.size for value in params.values()) == 355_359_744 - 1024 * 1025
    _, params = build(PUBLISHED["microsoft/mpnet-base"], with_head=False)
    assert sum(value.size for value in params.values()) == 109_486_464 - 768 * 769
    assert encoder_config("google-bert/bert-large-cased", 3).num_layers == 3
    with pytest.raises(UserError, match=r"gpt2: no such folder, .* bert-base-uncased, .*all-mpnet-base-v2$"):
        encoder_config("gpt2")
