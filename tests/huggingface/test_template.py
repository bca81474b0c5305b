import dataclasses
import pickle

import numpy as np
import pytest
from support.layouts import LAYOUTS, write_layout

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.huggingface.write import write_encoder_files

TEXT, LONG = "the cat [X] sat on [MASK].", "dog bird " * 40


@pytest.fixture(scope="module")
def model(masked_bert):
    return dataclasses.replace(load(str(masked_bert)), template=TEXT)


def tokens(tokenizer, ids):
    return " ".join(tokenizer.token(number) for number in ids)


def test_a_template_is_around_every_sentence_whole_and_another_has_the_same_special_tokens(model):
    tokenizer = model.tokenizer
    (short, empty, long), cut = tokenizer.tokenize(["red dog", "", LONG], 12)
    assert tokens(tokenizer, short) == "[CLS] the cat red dog sat on [MASK] . [SEP]"
    assert tokens(tokenizer, empty) == "[CLS] the cat sat on [MASK] . [SEP]"
    assert tokens(tokenizer, long) == "[CLS] the cat dog bird dog bird sat on [MASK] . [SEP]"
    assert cut == {2: 76} and tokenizer.template.size == len(empty)
    np.testing.assert_array_equal(empty, tokenizer.template.before + tokenizer.template.after)
    assert tokenizer.words(["red dog"], 12)[0].tolist() == [-1, -1, -1, 0, 1, *[-1] * 5]
    with pytest.raises(UserError, match="8 tokens leave no room for a sentence: the model's template alone has 8"):
        tokenizer(["dog"], 8)
    other = model.tokenizer.make_template("[MASK] is [X]")
    assert tokens(model.tokenizer, other.before) == "[CLS] [MASK] [UNK]" and len(other.after) == 1
    assert dataclasses.replace(model, template="[MASK] is [X]").tokenizer.template == other
    plain = load(str(model.folder)).tokenizer
    assert plain.template is None and plain.make_template(TEXT) == model.tokenizer.template


def test_a_template_is_in_the_file_and_in_a_copy_and_needs_a_mask_token_as_does_the_pooler(model, tmp_path, tiny_bert):
    write_encoder_files(model, model.tokenizer, tmp_path, "mask_token", False)
    read, sent = Tokenizer(tmp_path, model.config), pickle.loads(pickle.dumps(model.tokenizer))
    for again in (read, sent):
        assert again.template == model.tokenizer.template and again.mask_token_id == model.tokenizer.mask_token_id
        assert again(["red dog"], 12)[0].tolist() == model.tokenizer(["red dog"], 12)[0].tolist()
    with pytest.raises(UserError, match="has a template already"):
        Tokenizer(tmp_path, model.config, TEXT)
    assert model.tokenizer.content() == read.content() != load(str(model.folder)).tokenizer.content()
    with pytest.raises(UserError, match=r"no mask token, for which the template 'the cat \[X\] sat on \[MASK\].' has"):
        _ = dataclasses.replace(load(str(tiny_bert)), template=TEXT).tokenizer
    assert choose_pooler(model, "mask_token") == ("mask_token", False)
    for text in ("", "the cat [X]"):
        with pytest.raises(UserError, match=r"the pooler mask_token: .* has no template with a mask token"):
            choose_pooler(dataclasses.replace(model, template=text), "mask_token")


NAMES = ("google/electra-small-generator", "intfloat/multilingual-e5-base", "Qwen/Qwen3-Embedding-0.6B")
NAMES += ("google/embeddinggemma-300m", "intfloat/e5-mistral-7b-instruct")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", ["distilbert/distilroberta-base", *SLOW])
def test_transformers_reads_it_from_an_export_of_each_kind_of_tokenizer(name, tmp_path):
    from transformers import AutoTokenizer

    text = 'This sentence : "[X]" means in one word:"'
    model = dataclasses.replace(load(str(write_layout(tmp_path / "model", LAYOUTS[name]))), template=text)
    (tmp_path / "out").mkdir()
    write_encoder_files(model, model.tokenizer, tmp_path / "out", "last", False)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    for sentence in ("the cat", "", LONG):
        (ours,) = model.tokenizer([sentence], 64)
        assert theirs(sentence, truncation=True, max_length=64)["input_ids"] == ours.tolist()
    assert len(ours) == 64 and tuple(ours[-len(model.tokenizer.template.after) :]) == model.tokenizer.template.after
    assert theirs.pad_token_id == model.config.pad_token_id or model.config.causal
    inner = theirs.decode(ours, skip_special_tokens=True)
    assert all(word in inner for word in ("sentence", "dog", "means in one word"))
