import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.cross_encoders import write_cross_encoder

from simcse_jax.errors import UserError
from simcse_jax.huggingface.cross_encoder import is_cross_encoder, load_cross_encoder, reads_types


@pytest.fixture
def folder(tmp_path):
    return write_cross_encoder(tmp_path / "model")


def changed(folder, name="config.json", **fields):
    path = folder / name
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(before | fields))


def refused(folder, *parts):
    with pytest.raises(UserError) as error:
        load_cross_encoder(str(folder))
    assert "\n" not in str(error.value) and all(part in str(error.value) for part in parts), str(error.value)


def test_a_folder_says_that_it_is_one(folder, tiny_bert, exported):
    assert (
        is_cross_encoder(str(folder)) and not is_cross_encoder(str(tiny_bert)) and not is_cross_encoder(str(exported))
    )
    for name in (tiny_bert, exported):
        refused(name, f"{name}: is not a cross-encoder", "ForSequenceClassification")
    changed(folder, architectures=["BertModel"])
    assert not is_cross_encoder(str(folder))
    changed(folder, "config_sentence_transformers.json", model_type="CrossEncoder")
    assert is_cross_encoder(str(folder))
    assert load_cross_encoder(str(folder)).pooler == "cls"


def test_what_this_package_lacks_is_refused_by_its_name(folder):
    changed(folder, sentence_transformers={"activation_fn": "torch.nn.modules.activation.Softmax"})
    refused(folder, "config.json: the activation 'torch.nn.modules.activation.Softmax' is not supported")
    changed(folder, sentence_transformers={"activation_fn": "mine.Activation"})  # code, which is not run
    assert load_cross_encoder(str(folder)).config.modules[-1].activation == "Sigmoid"
    changed(folder, "sentence_bert_config.json", transformer_task="text-generation")
    refused(folder, "transformer_task is 'text-generation'")
    changed(folder, "sentence_bert_config.json", transformer_task="sequence-classification")
    changed(folder, "config_sentence_transformers.json", model_type="CrossEncoder")
    kinds = ("Transformer", "Dense")
    listing = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(listing))
    refused(folder, "modules.json: a cross-encoder with the module sentence_transformers.models.Dense")


def test_a_type_without_such_a_head_is_refused(folder):
    changed(folder, model_type="nomic_bert", hidden_act="silu", rope_parameters={"rope_theta": 100.0})
    refused(folder, "cross-encoders of the type nomic_bert are not supported")


def test_a_damaged_head_is_refused(folder):
    file = folder / "model.safetensors"
    whole = load_file(file)
    for name, value, message in (
        ("classifier.weight", None, "the tensor 'classifier.weight' of its classification head is missing"),
        ("classifier.weight", np.zeros((1, 31), np.float32), "'classifier.weight' has shape (1, 31)"),
        ("pooler.dense.weight", None, "'pooler.dense.weight' of its classification head is missing"),
        ("classifier.bias", np.zeros(2, np.float32), "'classifier.bias' has shape (2,)"),
        ("classifier.bias", np.full(1, np.nan, np.float32), "'classifier.bias' has values that are not finite"),
    ):
        tensors = {**whole, name: value} if value is not None else {n: v for n, v in whole.items() if n != name}
        save_file(tensors, file, metadata={"format": "pt"})
        refused(folder, str(file), message)


@pytest.mark.parametrize(
    ("fields", "typed"),
    [
        ({}, True),
        ({"tokenizer_class": "BertTokenizerFast"}, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, False),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "token_type_ids"]}, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, False),
    ],
)
def test_tokens_have_types_where_transformers_tokenizer_gives_them(folder, fields, typed):
    changed(folder, "tokenizer_config.json", **fields)
    assert reads_types(load_cross_encoder(str(folder))) == typed
    pytest.importorskip("torch")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert ("token_type_ids" in tokenizer("a", "b")) == typed
