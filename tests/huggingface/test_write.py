import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import ENCODERS, write_model
from support.models import add_mask_token, drawn_modules, edit_json, edit_tensors, same
from support.recorded import recorded, twice

from simcse_jax.choices import MASK_TOKEN, POOLERS
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.sentence_transformers import Settings
from simcse_jax.huggingface.tokenizer import MARKER
from simcse_jax.huggingface.weight_names import NAMES, head_tensors, to_tensors
from simcse_jax.huggingface.write import write_model as write_folder
from simcse_jax.models.config import Dense, LayerNorm, Normalize
from simcse_jax.models.language_model import shapes
from simcse_jax.simcse import SimCSE


@pytest.mark.parametrize(
    ("pooler", "with_head"), [("cls", False), *((pooler, place % 2 == 0) for place, pooler in enumerate(POOLERS))]
)
def test_a_written_model_is_read_again(pooler, with_head, tmp_path):
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
    found = load(str(folder))
    same(found, model)
    assert (found.pooler, found.has_head) == (pooler, with_head)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"] and "_name_or_path" not in config
    (folder / MARKER).unlink()
    found = load(str(folder))
    equal = {"cls_before_pooler": "cls", "avg_first_last": "avg_top2"}  # the latter with two layers
    assert choose_pooler(found, None) == (equal.get(pooler, pooler), with_head)
    same(found, model)


def test_what_another_program_changed_in_an_export_counts(tmp_path):
    """sentence-transformers saves over an export and leaves our marker there."""
    exported = tmp_path / "exported"
    exported.mkdir()
    write_folder(load(str(write_model(tmp_path / "source", "bert", architectures=["BertForCL"]))), exported)
    listing, before = json.loads((exported / "modules.json").read_text()), load(str(exported))
    assert (before.pooler, before.has_head, before.normalize) == ("cls", True, False)

    def changed(name, change, *args, **fields):
        folder = shutil.copytree(exported, tmp_path / name)
        change(folder / "1_Pooling" / "config.json" if fields else folder, *args, **fields)
        return load(str(folder))

    def modules(folder, *own):
        (folder / "modules.json").write_text(json.dumps(own))

    pooled = changed("pooled", edit_json, pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)
    headless = changed("headless", modules, *listing[:2])
    assert [(each.pooler, each.has_head) for each in (pooled, headless)] == [("avg", True), ("cls", False)]
    normalize = {"idx": 3, "name": "3", "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}
    assert changed("unit", modules, *listing, normalize).normalize
    doubled = lambda tensors: {name: 2 * value for name, value in tensors.items()}  # noqa: E731
    kernel = changed("trained", lambda folder: edit_tensors(folder / "2_Dense", doubled)).params["head.kernel"]
    np.testing.assert_array_equal(kernel, 2 * np.asarray(before.params["head.kernel"]))
    same(changed("flat", lambda folder: [shutil.rmtree(folder / name) for name in ("1_Pooling", "2_Dense")]), before)


def test_what_cannot_be_written_is_refused_and_settings_and_first_layers_that_share_weights_are_written(tmp_path):
    model = load(str(write_model(tmp_path / "source", "bert")))
    settings = Settings({"query": "the ", "document": ""}, "query", "dot", 8)
    (tmp_path / "model").mkdir()
    write_folder(dataclasses.replace(model, settings=settings, normalize=True), tmp_path / "model")
    assert load(str(tmp_path / "model")).settings == settings and load(str(tmp_path / "model")).normalize
    (tmp_path / "model" / MARKER).unlink()
    assert load(str(tmp_path / "model")).settings == settings
    for changes in ({"pooler": "avg+cls"}, {"pooler": None, "refusal": "avg+cls"}):
        with pytest.raises(UserError, match=r"avg\+cls"):
            write_folder(dataclasses.replace(model, **changes), tmp_path / "other")
    source = write_model(tmp_path / "albert", "albert", num_hidden_layers=4)
    whole, model = load(str(source)), dataclasses.replace(load(str(source), 2), pooler="avg")
    assert model.params.keys() == {name for name in whole.params if not name.startswith("encoder.layers.1.")}
    (tmp_path / "two").mkdir()
    write_folder(model, tmp_path / "two")
    found = load(str(tmp_path / "two"))
    assert found.config == model.config and found.config.groups == [0, 0]
    same(found, model)


TEXTS = ["the cat", "a dog ran"]
MODULES = (
    *(Dense("Identity", 48, inputs=32, bias=False), Normalize(), Dense("Tanh", 20, residual=True, inputs=48)),
    *(LayerNorm(inputs=20), Dense("ReLU", 20, residual=True, inputs=20)),
)


@twice()
@pytest.mark.parametrize("kind", ["modules", "avg_first_last", "head", "mask_token"])
def test_an_export_is_read_back_and_sentence_transformers_computes_the_same(kind, live, tmp_path):
    source = write_model(tmp_path / "source", "bert", architectures=["BertForCL" if kind == "head" else "BertModel"])
    model = dataclasses.replace(load(str(source)), pooler={"modules": "avg", "head": "cls"}.get(kind, kind))
    if kind == "modules":
        config, params = dataclasses.replace(model.config, modules=MODULES), {**model.params, **drawn_modules(MODULES)}
        changes = {"config": config, "params": params, "include_prompt": False, "normalize": True}
        model = dataclasses.replace(model, **changes)
    if kind == "mask_token":
        add_mask_token(source)
        model = dataclasses.replace(load(str(source)), pooler=kind, template="the cat [X] sat on [MASK].")
    (tmp_path / "model").mkdir()
    write_folder(model, tmp_path / "model")
    found = load(str(tmp_path / "model"))
    assert (found.config.modules, found.include_prompt) == (model.config.modules, model.include_prompt)
    assert found.normalize == model.normalize
    same(found, model)
    ours = SimCSE(tmp_path / "model").encode(TEXTS, prompt="the ")

    def compute():
        from sentence_transformers import SentenceTransformer

        return {"embeddings": SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS, prompt="the ")}

    theirs = recorded(f"exports/{kind}", compute, "torch", "sentence-transformers", live=live)
    np.testing.assert_allclose(ours, theirs["embeddings"], atol=1e-5)
    if kind == "modules":
        shutil.rmtree(tmp_path / "model" / "2_Dense")
        with pytest.raises(UserError, match="2_Dense"):  # not the same model without it
            load(str(tmp_path / "model"))


def random_head(config):
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes(config).items()}


@pytest.mark.parametrize("model_type", ["bert", "electra", "albert", "modernbert"])
def test_a_language_model_is_kept_with_what_the_config_says_of_the_decoder(model_type, tmp_path):
    """transformers leaves out the biases of words, or makes other weights, where these are false."""
    said = {"decoder_bias": False, "tie_word_embeddings": False} if model_type == "modernbert" else {}
    source = load(str(write_model(tmp_path / "source", model_type, **said)))
    for head in (None, random_head(source.config)):
        folder = tmp_path / f"with {bool(head)}"
        folder.mkdir()
        write_folder(dataclasses.replace(source, pooler="avg", language_model=head), folder)
        config, found = json.loads((folder / "config.json").read_text()), load(str(folder)).language_model
        assert not said or (config["decoder_bias"], config["tie_word_embeddings"]) == (bool(head), bool(head))
        assert (found or {}).keys() == (head or {}).keys()
        for name, value in (head or {}).items():
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [kind for kind in ENCODERS if kind not in ("xlm-roberta", "camembert", "ernie")])
def test_transformers_opens_the_language_model(model_type, tmp_path):
    pytest.importorskip("torch")
    from transformers import AutoModel, AutoModelForMaskedLM

    source = load(str(write_model(tmp_path / "source", model_type)))
    head = random_head(source.config)
    (tmp_path / "model").mkdir()
    write_folder(dataclasses.replace(source, pooler="avg", language_model=head), tmp_path / "model")
    for kind in (AutoModelForMaskedLM, AutoModel):  # nothing is drawn at random
        theirs, loading = kind.from_pretrained(tmp_path / "model", output_loading_info=True)
        assert not loading["missing_keys"] and not loading["mismatched_keys"]
        if kind is AutoModelForMaskedLM:
            theirs.save_pretrained(tmp_path / "theirs")  # NomicBERT's names in files are not those of its modules
            tensors = {name: value.numpy() for name, value in theirs.state_dict().items()}
    tensors |= load_file(tmp_path / "theirs" / "model.safetensors")
    found = {name.removeprefix(NAMES[model_type].prefix): value for name, value in tensors.items()}
    for name, value in (head_tensors(head, model_type) | to_tensors(source.params, source.config)).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
def test_mpnet_s_tokenizer_is_written_unchanged(minilm, tmp_path):
    """MPNet-base's vocabulary is BERT's 30,522 pieces, which MiniLM shares, among five tokens of its own."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from transformers import MPNetTokenizer

    pieces = (resolve(minilm) / "vocab.txt").read_text(encoding="utf-8").splitlines()
    words = {word: number for number, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"])}
    source, export = write_model(tmp_path / "source", "mpnet", vocab_size=len(words)), tmp_path / "export"
    MPNetTokenizer(words).save_pretrained(source)
    export.mkdir()
    write_folder(dataclasses.replace(load(str(source)), pooler="avg"), export)
    texts = ["Grüße aus Köln 🎸", "don't-stop, McDonald's? <mask>", "", "漢字かな", "a " * 600, "ÉCOLE normale"]
    ours = SimCSE(str(source), pooler="avg").encode(texts)
    for found in (sentence_transformers.SentenceTransformer(str(export), device="cpu"), SimCSE(export)):
        np.testing.assert_allclose(found.encode(texts), ours, atol=1e-5)
