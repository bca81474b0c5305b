import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CONFIGS, ENCODERS, random_batch, write_model

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.tokenizer import MARKER, read_backend, special_tokens
from simcse_jax.huggingface.weight_names import NAMES as TABLES
from simcse_jax.huggingface.weight_names import head_tensors, normalize_names, read_head
from simcse_jax.models import language_model, parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build

NAMES = {  # as transformers writes them
    "bert": {
        "dense.kernel": "cls.predictions.transform.dense.weight",
        "dense.bias": "cls.predictions.transform.dense.bias",
        "norm.scale": "cls.predictions.transform.LayerNorm.weight",
        "norm.bias": "cls.predictions.transform.LayerNorm.bias",
        "bias": "cls.predictions.bias",
    },
    "roberta": {
        "dense.kernel": "lm_head.dense.weight",
        "dense.bias": "lm_head.dense.bias",
        "norm.scale": "lm_head.layer_norm.weight",
        "norm.bias": "lm_head.layer_norm.bias",
        "bias": "lm_head.bias",
    },
}
NAMES["mpnet"] = NAMES["roberta"]
NAMES["distilbert"] = {
    "dense.kernel": "vocab_transform.weight",
    "dense.bias": "vocab_transform.bias",
    "norm.scale": "vocab_layer_norm.weight",
    "norm.bias": "vocab_layer_norm.bias",
    "bias": "vocab_projector.bias",
}
NAMES["electra"] = {
    "dense.kernel": "generator_predictions.dense.weight",
    "dense.bias": "generator_predictions.dense.bias",
    "norm.scale": "generator_predictions.LayerNorm.weight",
    "norm.bias": "generator_predictions.LayerNorm.bias",
    "bias": "generator_lm_head.bias",
}
NAMES["albert"] = {
    "dense.kernel": "predictions.dense.weight",
    "dense.bias": "predictions.dense.bias",
    "norm.scale": "predictions.LayerNorm.weight",
    "norm.bias": "predictions.LayerNorm.bias",
    "bias": "predictions.bias",
}
NAMES["modernbert"] = {
    "dense.kernel": "head.dense.weight",
    "dense.bias": "head.dense.bias",
    "norm.scale": "head.norm.weight",
    "norm.bias": "head.norm.bias",
    "bias": "decoder.bias",
}
NAMES["nomic_bert"] = NAMES["bert"] | {
    "norm.scale": "cls.predictions.transform.layer_norm.weight",
    "norm.bias": "cls.predictions.transform.layer_norm.bias",
}
DECODERS = {"bert": "cls.predictions.decoder", "roberta": "lm_head.decoder", "mpnet": "lm_head.decoder"}
DECODERS |= {"distilbert": "vocab_projector", "electra": "generator_lm_head", "albert": "predictions.decoder"}
DECODERS |= {"modernbert": "decoder", "nomic_bert": "cls.predictions.decoder"}
HEADS = tuple(NAMES)  # a model type with each kind of head
for other, kind in {"xlm-roberta": "roberta", "camembert": "roberta", "ernie": "bert"}.items():
    NAMES[other] = NAMES[kind]
PREFIXES = {"xlm-roberta": "roberta", "camembert": "roberta", "modernbert": "model"}  # of their encoders' tensors


def encoder_config(model_type, **changes):
    return EncoderConfig.from_hugging_face(CONFIGS[model_type] | changes, "test")


def random_head(seed=0, model_type="bert"):
    generator = np.random.default_rng(seed)
    shapes = language_model.shapes(encoder_config(model_type))
    return {name: generator.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def tensors_of(head, model_type):
    return {NAMES[model_type][name]: value.T if name == "dense.kernel" else value for name, value in head.items()}


@pytest.fixture(params=HEADS)
def with_head(request, tmp_path):
    """(folder, head, model_type) of a checkpoint with its pretrained language-model head."""
    folder, head = write_model(tmp_path / "model", request.param), random_head(model_type=request.param)
    add_tensors(folder, {k: np.ascontiguousarray(v) for k, v in tensors_of(head, request.param).items()})
    return folder, head, request.param


def add_tensors(folder, tensors, *removed):
    kept = {k: v for k, v in load_file(folder / "model.safetensors").items() if k not in removed}
    save_file(kept | tensors, folder / "model.safetensors", metadata={"format": "pt"})


def same(found, wanted):
    assert found is not None and set(found) == set(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_logits_by_numpy():
    generator = np.random.default_rng(1)
    hidden, words = generator.normal(size=(5, 32)), generator.normal(size=(40, 32))
    head, config = random_head(), encoder_config("bert", hidden_act="relu", layer_norm_eps=0.5)
    x = np.maximum(hidden @ np.float64(head["dense.kernel"]) + head["dense.bias"], 0)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.5)
    wanted = (x * head["norm.scale"] + head["norm.bias"]) @ words.T + head["bias"]
    found = language_model.logits(jnp.array(hidden), head, jnp.array(words), config)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_logits_of_two_numbers_by_hand():
    # W swaps the two numbers, so x = (3, 1); normalized (1, -1), scaled (2, -3), shifted (2, -2).
    head = {"dense.kernel": np.array([[0.0, 1.0], [1.0, 0.0]]), "dense.bias": np.zeros(2)}
    head |= {"norm.scale": np.array([2.0, 3.0]), "norm.bias": np.array([0.0, 1.0]), "bias": np.array([0.0, 0.0, 10.0])}
    words = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    config = dataclasses.replace(encoder_config("bert", hidden_act="relu"), layer_norm_eps=0.0)
    found = language_model.logits(jnp.array([[1.0, 3.0]]), head, words, config)
    np.testing.assert_allclose(found, [[2.0, -2.0, 10.0]], rtol=1e-6)


def test_logits_are_float32_whatever_the_encoder_s_dtype():
    head, words, config = random_head(), jnp.ones((40, 32)), encoder_config("bert")
    hidden = jnp.full((1, 32), 1.5, jnp.bfloat16)
    found = language_model.logits(hidden, head, words, config)
    exact = language_model.logits(hidden.astype(jnp.float32), head, words, config)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, exact)


def test_the_activation_is_the_encoder_s_for_bert_and_distilbert_and_gelu_for_the_others():
    x = jnp.linspace(-2, 2, 9)
    configs = [encoder_config(kind, hidden_act="relu") for kind in ("bert", "ernie", "albert")]
    for config in (*configs, encoder_config("distilbert", activation="relu")):
        np.testing.assert_array_equal(language_model.activation(config)(x), jax.nn.relu(x))
    for model_type in ("roberta", "mpnet", "electra", "camembert"):
        other = language_model.activation(encoder_config(model_type, hidden_act="relu"))
        np.testing.assert_allclose(other(x), jax.nn.gelu(x, approximate=False), rtol=1e-6)


def test_a_head_is_read(with_head):
    folder, head, model_type = with_head
    model = load(str(folder))
    same(model.language_model, head)
    assert not any(name.startswith(("cls", "lm_head", "vocab")) for name in model.params)
    same(load(str(folder), 1).language_model, head)
    saved = load_file(folder / "model.safetensors")
    for name, value in head_tensors(head, model_type).items():
        np.testing.assert_array_equal(value, saved[name], err_msg=name)


def test_other_names_in_use(with_head):
    folder, head, model_type = with_head
    names = NAMES[model_type]
    words = f"embeddings.{'tok' if model_type == 'modernbert' else 'word'}_embeddings.weight"
    decoder = DECODERS[model_type]
    saved = load_file(folder / "model.safetensors")
    # The bias under its other name, and the decoder stored although it is tied.
    given = {f"{decoder}.bias": head["bias"], f"{decoder}.weight": saved[words]}
    add_tensors(folder, given, *({names["bias"]} - given.keys()))
    same(load(str(folder)).language_model, head)
    size = len(head["norm.scale"])
    half = {names["norm.scale"]: np.ones(size, np.float16)}
    add_tensors(folder, half)
    same(load(str(folder)).language_model, head | {"norm.scale": np.ones(size, np.float32)})


def test_gamma_and_beta_and_the_prefix(tmp_path):
    head = random_head()
    tensors = load_file(write_model(tmp_path / "model", "bert") / "model.safetensors")
    tensors = {f"bert.{name}": value for name, value in tensors.items()} | tensors_of(head, "bert")
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in tensors.items()
    }
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, tmp_path / "model" / "model.safetensors")
    same(load(str(tmp_path / "model")).language_model, head)


def test_checkpoints_without_a_whole_head_have_none(with_head, tiny_folder):
    folder, _, model_type = with_head
    assert load(str(tiny_folder)).language_model is None
    head = random_head(model_type=model_type)
    for name in tensors_of({own: head[own] for own in head.keys() - TABLES[model_type].head_may_lack}, model_type):
        tensors = normalize_names(load_file(folder / "model.safetensors"))
        del tensors[name]
        assert read_head(tensors, encoder_config(model_type)) is None, name


def test_a_head_with_an_untied_decoder_is_not_read(with_head):
    folder, _, model_type = with_head
    name = f"{DECODERS[model_type]}.weight"
    add_tensors(folder, {name: np.ones((40, 32), np.float32)})
    assert load(str(folder)).language_model is None


def test_a_decoder_that_is_said_to_be_untied_must_be_stored(tmp_path):
    """transformers starts it at random; stored, it may be the word embeddings all the same."""
    folder = write_model(tmp_path / "model", "modernbert", tie_word_embeddings=False)
    head = random_head(model_type="modernbert")
    add_tensors(folder, {k: np.ascontiguousarray(v) for k, v in tensors_of(head, "modernbert").items()})
    assert load(str(folder)).language_model is None
    words = load_file(folder / "model.safetensors")["embeddings.tok_embeddings.weight"]
    add_tensors(folder, {"decoder.weight": words})
    same(load(str(folder)).language_model, head)


@pytest.mark.parametrize("part", ["dense.kernel", "dense.bias", "norm.scale", "norm.bias", "bias"])
def test_a_head_of_another_shape_is_not_read(with_head, part):
    folder, _, model_type = with_head
    name = NAMES[model_type][part]
    add_tensors(folder, {name: np.zeros((7,), np.float32)})
    assert load(str(folder)).language_model is None


def test_a_fresh_head():
    head = language_model.fresh_head(encoder_config("bert", hidden_size=256), jax.random.key(3))
    assert {name: value.shape for name, value in head.items()} == {
        "dense.kernel": (256, 256),
        "dense.bias": (256,),
        "norm.scale": (256,),
        "norm.bias": (256,),
        "bias": (40,),
    }
    assert all(value.dtype == jnp.float32 for value in head.values())
    assert abs(float(head["dense.kernel"].mean())) < 5e-4
    assert float(head["dense.kernel"].std()) == pytest.approx(0.02, rel=0.02)
    assert bool(jnp.all(head["norm.scale"] == 1))
    assert not any(bool(jnp.any(head[name])) for name in ("dense.bias", "norm.bias", "bias"))
    other = language_model.fresh_head(encoder_config("bert", hidden_size=256), jax.random.key(4))
    assert bool(jnp.any(other["dense.kernel"] != head["dense.kernel"]))


def add_mask_token(folder, token):
    """Gives a tiny model's tokenizer a mask token with id 39, as transformers saves one."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": 39, "content": token, "special": True, **added})
    tokenizer["added_tokens"].append({"id": 38, "content": "newword", "special": False, **added})  # an ordinary one
    tokenizer["model"]["vocab"] |= {token: 39, "newword": 38}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text()) | {"mask_token": token}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(("model_type", "token"), [("bert", "[MASK]"), ("roberta", "<mask>"), ("mpnet", "<mask>")])
def test_special_tokens_of_a_transformers_folder(tmp_path, model_type, token):
    folder = write_model(tmp_path / "model", model_type)
    with pytest.raises(UserError, match="has no mask token"):
        special_tokens(folder)
    add_mask_token(folder, token)
    mask, special = special_tokens(folder)
    assert (mask, special) == (39, (0, 1, 2, 3, 39))
    hash(special)  # it is part of the key of a compiled step


def as_ours(folder, target):
    """A folder as our runs write one: the tokenizer that transformers reads, saved as `tokenizer.json`."""
    shutil.copytree(folder, target)
    read_backend(folder)[0].save(str(target / "tokenizer.json"))
    (target / MARKER).write_text('{"pooler": "cls", "head": false}')
    return target


def test_special_tokens_of_our_own_folders(tmp_path):
    plain = write_model(tmp_path / "plain", "bert")
    with pytest.raises(UserError, match="has no mask token"):
        special_tokens(as_ours(plain, tmp_path / "ours without"))
    add_mask_token(plain, "@hidden")
    ours = as_ours(plain, tmp_path / "ours")
    assert special_tokens(ours) == (39, (0, 1, 2, 3, 39))
    config = json.loads((ours / "tokenizer_config.json").read_text())
    config["mask_token"] = {"content": "@hidden", "lstrip": False}
    (ours / "tokenizer_config.json").write_text(json.dumps(config))
    assert special_tokens(ours)[0] == 39
    (ours / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match="has no mask token"):
        special_tokens(ours)
    (ours / "special_tokens_map.json").write_text('{"mask_token": "@hidden"}')
    assert special_tokens(ours)[0] == 39


def test_a_mask_token_that_only_the_tokenizer_s_class_knows(tmp_path):
    folder = write_model(tmp_path / "model", "bert")
    add_mask_token(folder, "[MASK]")
    ours = as_ours(folder, tmp_path / "ours")
    config = json.loads((ours / "tokenizer_config.json").read_text())
    del config["mask_token"]
    (ours / "tokenizer_config.json").write_text(json.dumps(config))
    assert special_tokens(ours) == (39, (0, 1, 2, 3, 39))


def test_a_damaged_tokenizer(tmp_path):
    folder = write_model(tmp_path / "model", "bert")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"model/tokenizer\.json: not (valid JSON|a readable tokenizer)"):
        special_tokens(folder)
    (folder / MARKER).write_text("{}")
    with pytest.raises(UserError, match=r"model/tokenizer\.json: not (valid JSON|a readable tokenizer)"):
        special_tokens(folder)


@pytest.mark.slow
@pytest.mark.parametrize("hidden_act", ["gelu", "relu"])
@pytest.mark.parametrize("model_type", ENCODERS)
def test_logits_are_those_of_transformers(tmp_path, model_type, hidden_act):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForMaskedLM

    folder = write_model(tmp_path / "model", model_type, hidden_act=hidden_act, layer_norm_eps=1e-3)
    kept = load_file(folder / "model.safetensors")
    prefix = PREFIXES.get(model_type, model_type)
    prefixed = {f"{prefix}.{name}": value for name, value in kept.items() if not name.startswith("pooler")}
    head = {k: np.ascontiguousarray(v) for k, v in tensors_of(random_head(0, model_type), model_type).items()}
    save_file(prefixed | head, folder / "model.safetensors", metadata={"format": "pt"})
    ids, mask = (array[:, 0] for array in random_batch(5, 16))

    reference, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    reference.eval()
    with torch.no_grad():
        theirs = reference(torch.tensor(np.where(mask > 0, ids, 1)), torch.tensor(mask)).logits.numpy()
    reference.save_pretrained(tmp_path / "theirs")  # also with this version's names and tying
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs")

    for name in (folder, tmp_path / "theirs"):
        model = load(str(name))
        graph, _ = build(model.config, with_head=False)
        hidden = parameters.merge(graph, model.params).encoder(ids, mask)[-1]
        ours = language_model.logits(
            hidden.reshape(-1, 32),
            model.language_model,
            model.params["encoder.embeddings.word.embedding"],
            model.config,
        ).reshape(theirs.shape)
        np.testing.assert_allclose(np.asarray(ours)[mask > 0], theirs[mask > 0], atol=1e-4)
