import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import ENCODERS, KINDS, write_model
from support.models import add_mask_token, drawn_modules, edit_json, edit_tensors, same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.sentence_transformers import Settings
from simcse_jax.huggingface.tokenizer import MARKER
from simcse_jax.huggingface.weight_names import NAMES, head_tensors, to_tensors
from simcse_jax.huggingface.write import write_model as write_folder
from simcse_jax.models.config import MASK_TOKEN, POOLERS, Dense, LayerNorm, Normalize
from simcse_jax.models.language_model import shapes
from simcse_jax.simcse import SimCSE


@pytest.mark.parametrize("with_head", [True, False])
@pytest.mark.parametrize("pooler", POOLERS)
def test_a_written_model_is_read_again(pooler, with_head, tmp_path):
    """With our marker, completely; from the modules alone, as far as sentence-transformers can express it."""
    architectures = ["BertForCL" if with_head else "BertModel"]  # the reference's class implies a head
    source = write_model(tmp_path / "source", "bert", architectures=architectures, _name_or_path="/home/ann")
    model = dataclasses.replace(load(str(source)), pooler=pooler)
    if pooler == MASK_TOKEN:
        add_mask_token(source)
        model = dataclasses.replace(model, template="the cat [X] sat on [MASK].")
    folder = tmp_path / "model"
    folder.mkdir()
    write_folder(model, folder)
    if pooler == "cls_before_pooler":  # which no head follows
        with_head = False
        kept = {name: value for name, value in model.params.items() if not name.startswith("head.")}
        model = dataclasses.replace(model, params=kept)
    same(load(str(folder)), model)
    assert (load(str(folder)).pooler, load(str(folder)).has_head) == (pooler, with_head)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"] and "_name_or_path" not in config

    (folder / MARKER).unlink()
    found = load(str(folder))
    equal = {"cls_before_pooler": "cls", "avg_first_last": "avg_top2"}  # the latter with two layers
    assert choose_pooler(found, None) == (equal.get(pooler, pooler), with_head)
    same(found, model)


def test_what_another_program_changed_in_an_export_counts(tmp_path):
    """sentence-transformers saves over an export and leaves our marker there."""
    source = write_model(tmp_path / "source", "bert", architectures=["BertForCL"])
    exported = tmp_path / "exported"
    exported.mkdir()
    write_folder(load(str(source)), exported)
    listing = json.loads((exported / "modules.json").read_text())
    before = load(str(exported))
    assert (before.pooler, before.has_head, before.normalize) == ("cls", True, False)

    def changed(name: str):
        folder = shutil.copytree(exported, tmp_path / name)
        assert (folder / MARKER).exists()
        return folder

    pooled = changed("pooled")
    edit_json(pooled / "1_Pooling" / "config.json", pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)
    assert (load(str(pooled)).pooler, load(str(pooled)).has_head) == ("avg", True)
    headless = changed("headless")
    (headless / "modules.json").write_text(json.dumps(listing[:2]))
    assert (load(str(headless)).pooler, load(str(headless)).has_head) == ("cls", False)
    unit = changed("unit")
    normalize = {"idx": 3, "name": "3", "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}
    (unit / "modules.json").write_text(json.dumps([*listing, normalize]))
    assert load(str(unit)).normalize
    trained = changed("trained")
    edit_tensors(trained / "2_Dense", lambda tensors: {name: 2 * value for name, value in tensors.items()})
    kernel = np.asarray(load(str(trained)).params["head.kernel"])
    np.testing.assert_array_equal(kernel, 2 * np.asarray(before.params["head.kernel"]))
    flat = changed("flat")
    shutil.rmtree(flat / "1_Pooling")
    shutil.rmtree(flat / "2_Dense")
    same(load(str(flat)), before)
    unknown = changed("unknown")
    edit_json(unknown / "1_Pooling" / "config.json", pooling_mode_other=True)
    with pytest.raises(UserError, match="the pooling pooling_mode_other is not supported"):
        SimCSE(unknown)
    assert not choose_pooler(load(str(unknown)), "cls").use_head


def test_what_cannot_be_written_is_refused_and_settings_are_written(tmp_path):
    model = load(str(write_model(tmp_path / "source", "bert")))
    settings = Settings({"query": "the ", "document": ""}, "query", "dot", 8)
    (tmp_path / "model").mkdir()
    write_folder(dataclasses.replace(model, settings=settings, normalize=True), tmp_path / "model")
    assert load(str(tmp_path / "model")).settings == settings and load(str(tmp_path / "model")).normalize
    (tmp_path / "model" / MARKER).unlink()
    assert load(str(tmp_path / "model")).settings == settings
    for changes, message in (
        ({"pooler": "avg+cls"}, r"the pooler avg\+cls cannot be written"),
        ({"pooler": None, "refusal": "modules.json: no"}, "modules.json: no"),
    ):
        with pytest.raises(UserError, match=message):
            write_folder(dataclasses.replace(model, **changes), tmp_path / "other")


def test_modules_are_read_back_and_sentence_transformers_computes_the_same(tmp_path):
    modules = (
        *(Dense("Identity", 48, inputs=32, bias=False), Normalize(), Dense("Tanh", 20, residual=True, inputs=48)),
        *(LayerNorm(inputs=20), Dense("ReLU", 20, residual=True, inputs=20)),
    )
    model = load(str(write_model(tmp_path / "source", "bert")))
    config, params = dataclasses.replace(model.config, modules=modules), {**model.params, **drawn_modules(modules)}
    model = dataclasses.replace(model, config=config, params=params, pooler="avg", include_prompt=False, normalize=True)
    (tmp_path / "model").mkdir()
    write_folder(model, tmp_path / "model")
    found, texts = load(str(tmp_path / "model")), ["the cat", "a dog ran"]
    assert (found.config, found.include_prompt, found.normalize) == (model.config, False, True)
    assert found.params.keys() == model.params.keys()
    for name in found.params:
        np.testing.assert_array_equal(found.params[name], model.params[name])
    ours = SimCSE(tmp_path / "model").encode(texts, prompt="the ")
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(library.encode(texts, prompt="the "), ours, atol=1e-5)
    shutil.rmtree(tmp_path / "model" / "2_Dense")
    with pytest.raises(UserError, match="2_Dense"):  # not the same model without it
        load(str(tmp_path / "model"))


def random_head(config):
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes(config).items()}


@pytest.mark.parametrize("model_type", [*KINDS, "electra", "albert"])
def test_a_language_model_is_kept(model_type, tmp_path):
    source = load(str(write_model(tmp_path / "source", model_type)))
    head = random_head(source.config)
    (tmp_path / "model").mkdir()
    write_folder(dataclasses.replace(source, pooler="avg", language_model=head), tmp_path / "model")
    found = load(str(tmp_path / "model")).language_model
    assert found is not None and found.keys() == head.keys()
    for name, value in head.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_language_model_is_written_with_what_its_config_says_of_the_decoder(tmp_path):
    """transformers leaves out the biases of words, or makes other weights, where these are false."""
    said = {"decoder_bias": False, "tie_word_embeddings": False}
    source = load(str(write_model(tmp_path / "source", "modernbert", **said)))
    for head in (None, random_head(source.config)):
        folder = tmp_path / f"with {bool(head)}"
        folder.mkdir()
        write_folder(dataclasses.replace(source, pooler="avg", language_model=head), folder)
        config = json.loads((folder / "config.json").read_text())
        assert (config["decoder_bias"], config["tie_word_embeddings"]) == (bool(head), bool(head))


def test_the_first_of_layers_that_share_weights_are_written_with_their_number_of_groups(tmp_path):
    source = write_model(tmp_path / "source", "albert", num_hidden_layers=4)
    model = dataclasses.replace(load(str(source), 2), pooler="avg")
    (tmp_path / "model").mkdir()
    write_folder(model, tmp_path / "model")
    found = load(str(tmp_path / "model"))
    assert found.config == model.config and found.config.groups == [0, 0]
    same(found, model)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ENCODERS)
def test_transformers_opens_the_language_model(model_type, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModel, AutoModelForMaskedLM

    source = load(str(write_model(tmp_path / "source", model_type)))
    head = random_head(source.config)
    (tmp_path / "model").mkdir()
    write_folder(dataclasses.replace(source, pooler="avg", language_model=head), tmp_path / "model")
    theirs, loading = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not loading["missing_keys"] and not loading["mismatched_keys"]
    expected = head_tensors(head, model_type) | to_tensors(source.params, source.config)
    theirs.save_pretrained(tmp_path / "theirs")  # NomicBERT's names in files are not those of its modules
    tensors = {name: value.numpy() for name, value in theirs.state_dict().items()}
    tensors |= load_file(tmp_path / "theirs" / "model.safetensors")
    found = {name.removeprefix(NAMES[model_type].prefix): value for name, value in tensors.items()}
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    encoder, loading = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not loading["missing_keys"] and not loading["mismatched_keys"]  # nothing is drawn at random, with a warning
    if NAMES[model_type].has_pooler:  # the tanh of the first token, where the model has no head
        words = torch.tensor([[5, 6, 7]])
        states, pooled = encoder.eval()(words)[:2]
        torch.testing.assert_close(pooled, states[:, 0].tanh())


@pytest.mark.slow
def test_mpnet_s_tokenizer_is_written_unchanged(minilm, tmp_path):
    """MPNet-base's vocabulary is BERT's 30,522 pieces, which MiniLM shares, among five tokens of its own."""
    pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer
    from transformers import MPNetTokenizer

    pieces = (resolve(minilm) / "vocab.txt").read_text(encoding="utf-8").splitlines()
    words = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
    assert len(words) == 30527
    source = write_model(tmp_path / "source", "mpnet", vocab_size=len(words))
    MPNetTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(source)
    model = dataclasses.replace(load(str(source)), pooler="avg")
    (tmp_path / "export").mkdir()
    write_folder(model, tmp_path / "export")
    texts = ["Grüße aus Köln 🎸", "don't-stop, McDonald's? <mask>", "", "漢字かな", "a " * 600, "ÉCOLE normale"]
    ours = SimCSE(str(source), pooler="avg").encode(texts)
    for found in (SentenceTransformer(str(tmp_path / "export"), device="cpu"), SimCSE(str(tmp_path / "export"))):
        np.testing.assert_allclose(found.encode(texts), ours, atol=1e-5)
