import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CASES
from support.cross_encoders import write_cross_encoder
from support.recorded import recorded, twice

from simcse_jax import CrossEncoder
from simcse_jax.errors import UserError
from simcse_jax.huggingface.cross_encoder import EARLIER, is_cross_encoder, load_cross_encoder, reads_types


@pytest.fixture
def folder(tmp_path):
    return write_cross_encoder(tmp_path / "model")


def changed(folder, name="config.json", **fields):
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | fields))


def refused(folder, *parts):
    with pytest.raises(UserError) as error:
        load_cross_encoder(str(folder))
    assert "\n" not in str(error.value) and all(part in str(error.value) for part in parts), str(error.value)


def test_a_folder_says_that_it_is_one(folder, tiny_bert):
    assert is_cross_encoder(str(folder)) and not is_cross_encoder(str(tiny_bert))
    refused(tiny_bert, f"{tiny_bert}: is not a cross-encoder")
    changed(folder, architectures=["BertModel"])
    assert not is_cross_encoder(str(folder))
    changed(folder, "config_sentence_transformers.json", model_type="CrossEncoder")
    assert is_cross_encoder(str(folder)) and load_cross_encoder(str(folder)).pooler == "cls"


def test_what_this_package_lacks_is_refused_by_its_name(folder):
    changed(folder, sentence_transformers={"activation_fn": "torch.nn.modules.activation.Softmax"})
    refused(folder, "config.json", "torch.nn.modules.activation.Softmax")
    changed(folder, sentence_transformers={})
    changed(folder, "sentence_bert_config.json", transformer_task="text-generation")
    refused(folder, "transformer_task is 'text-generation'")
    changed(folder, "sentence_bert_config.json", transformer_task="sequence-classification")
    changed(folder, "config_sentence_transformers.json", model_type="CrossEncoder")
    listing = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in ("Transformer", "Dense")]
    (folder / "modules.json").write_text(json.dumps(listing))
    refused(folder, "modules.json", "sentence_transformers.models.Dense")
    (folder / "modules.json").unlink()
    changed(folder, model_type="nomic_bert", hidden_act="silu", rope_parameters={"rope_theta": 100.0})
    refused(folder, "cross-encoders of the type nomic_bert")


def test_the_activation_is_the_one_that_sentence_transformers_reads(folder):
    identity, version = "torch.nn.modules.linear.Identity", {"version": "4.0.1"}
    for own, earlier, expected in (
        (None, None, "Sigmoid"),
        (version, identity, "Identity"),
        (version | {"activation_fn": None}, identity, "Sigmoid"),
        ({"activation_fn": "mine.Activation"}, None, "Sigmoid"),  # code, which is not run
    ):
        changed(folder, **{EARLIER: earlier, "sentence_transformers": own})
        assert load_cross_encoder(str(folder)).config.modules[-1].activation == expected
    if CASES.is_dir():
        model = load_cross_encoder(str(CASES / "cross_encoder_version_only"))
        assert model.config.modules[-1].activation == "Identity"


def test_tokens_have_types_where_transformers_tokenizer_gives_them_and_a_damaged_head_is_refused(folder):
    from transformers import AutoTokenizer

    fast = {"tokenizer_class": "PreTrainedTokenizerFast"}
    names = {"model_input_names": ["input_ids", "token_type_ids"]}
    typed = ({}, {"tokenizer_class": "BertTokenizerFast"}, fast | names)
    own = (folder / "tokenizer_config.json").read_text()
    for fields in (*typed, fast, {"model_input_names": ["input_ids", "attention_mask"]}):
        (folder / "tokenizer_config.json").write_text(own)
        changed(folder, "tokenizer_config.json", **fields)
        assert reads_types(load_cross_encoder(str(folder))) == (fields in typed)
        assert ("token_type_ids" in AutoTokenizer.from_pretrained(folder)("a", "b")) == (fields in typed)
    file = folder / "model.safetensors"
    whole = load_file(file)
    for name, value in (
        *(("classifier.weight", None), ("classifier.weight", np.zeros((1, 31), np.float32))),
        *(("pooler.dense.weight", None), ("classifier.bias", np.zeros(2, np.float32))),
        ("classifier.bias", np.full(1, np.nan, np.float32)),
    ):
        tensors = {**whole, name: value} if value is not None else {n: v for n, v in whole.items() if n != name}
        save_file(tensors, file, metadata={"format": "pt"})
        refused(folder, str(file), f"'{name}'")


@twice()
@pytest.mark.parametrize("labels", [1, 3])
def test_scores_are_those_of_sentence_transformers(labels, live, tmp_path):
    long = "the cat sat on the mat and the dog ran home " * 4
    pairs = [("the cat", "da что"), ("a dog", long), (long, "x"), ("", "the"), ("what [SEP] is", "</s> it")]
    pairs += [("the dog", "home")]
    folder = write_cross_encoder(tmp_path / "model", labels, num_labels=labels)

    def compute():
        from sentence_transformers import CrossEncoder as Theirs

        return {"scores": Theirs(str(folder), device="cpu", local_files_only=True).predict(pairs)}

    theirs = recorded(f"cross_encoder_{labels}", compute, "torch", "sentence-transformers", live=live)["scores"]
    with pytest.warns(UserWarning, match="longer than 64 tokens"):
        found = CrossEncoder(folder).predict(pairs)
    assert found.shape == theirs.shape and np.ptp(theirs) > 0.1
    np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-5)
