import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CONFIGS, ENCODERS, random_batch, write_model
from support.models import add_mask_token, edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.tokenizer import MARKER, read_backend, special_tokens
from simcse_jax.huggingface.weight_names import NAMES as TABLES
from simcse_jax.huggingface.weight_names import head_tensors, normalize_names, read_head
from simcse_jax.models import language_model, parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build


def names_of(dense, norm, bias):
    names = {f"dense.{ours}": f"{dense}.{theirs}" for ours, theirs in (("kernel", "weight"), ("bias", "bias"))}
    return names | {"norm.scale": f"{norm}.weight", "norm.bias": f"{norm}.bias", "bias": bias}


START = "cls.predictions.transform"
NAMES = {  # as transformers writes them
    "bert": names_of(f"{START}.dense", f"{START}.LayerNorm", "cls.predictions.bias"),
    "roberta": names_of("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    "mpnet": names_of("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    "distilbert": names_of("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    "electra": names_of("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
    "albert": names_of("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
    "modernbert": names_of("head.dense", "head.norm", "decoder.bias"),
    "nomic_bert": names_of(f"{START}.dense", f"{START}.layer_norm", "cls.predictions.bias"),
}
DECODERS = {"bert": "cls.predictions.decoder", "roberta": "lm_head.decoder", "mpnet": "lm_head.decoder"}
DECODERS |= {"distilbert": "vocab_projector", "electra": "generator_lm_head", "albert": "predictions.decoder"}
DECODERS |= {"modernbert": "decoder", "nomic_bert": "cls.predictions.decoder"}
HEADS = tuple(NAMES)  # a model type with each kind of head
for other, kind in {"xlm-roberta": "roberta", "camembert": "roberta", "ernie": "bert"}.items():
    NAMES[other] = NAMES[kind]


def encoder_config(model_type, **changes):
    return EncoderConfig.from_hugging_face(CONFIGS[model_type] | changes, "test")


def random_head(seed=0, model_type="bert"):
    generator = np.random.default_rng(seed)
    shapes = language_model.shapes(encoder_config(model_type))
    return {name: generator.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def tensors_of(head, model_type):
    names = NAMES[model_type]
    return {names[own]: np.ascontiguousarray(x.T if own == "dense.kernel" else x) for own, x in head.items()}


@pytest.fixture(params=HEADS)
def with_head(request, tmp_path):
    folder, head = write_model(tmp_path / "model", request.param), random_head(model_type=request.param)
    add_tensors(folder, tensors_of(head, request.param))
    return folder, head, request.param


def add_tensors(folder, tensors, *removed):
    kept = {k: v for k, v in load_file(folder / "model.safetensors").items() if k not in removed}
    save_file(kept | tensors, folder / "model.safetensors", metadata={"format": "pt"})


def same(found, wanted):
    assert found is not None and set(found) == set(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_logits_by_numpy_and_a_fresh_head():
    generator = np.random.default_rng(1)
    hidden, words = generator.normal(size=(5, 32)), generator.normal(size=(40, 32))
    hidden = np.float64(jnp.asarray(hidden, jnp.bfloat16))
    head, config = random_head(), encoder_config("bert", hidden_act="relu", layer_norm_eps=0.5)
    x = np.maximum(hidden @ np.float64(head["dense.kernel"]) + head["dense.bias"], 0)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.5)
    wanted = (x * head["norm.scale"] + head["norm.bias"]) @ words.T + head["bias"]
    for dtype in (jnp.float32, jnp.bfloat16):
        found = language_model.logits(jnp.asarray(hidden, dtype), head, jnp.array(words), config)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    # The activation is the encoder's for BERT's kinds, and gelu for the others.
    x = jnp.linspace(-2, 2, 9)
    own = ("bert", "ernie", "albert", "distilbert")
    for kind in (*own, "roberta", "mpnet", "electra", "camembert"):
        config = encoder_config(kind, **{"activation" if kind == "distilbert" else "hidden_act": "relu"})
        expected = jax.nn.relu(x) if kind in own else jax.nn.gelu(x, approximate=False)
        np.testing.assert_allclose(language_model.activation(config)(x), expected, rtol=1e-6)
    config = encoder_config("bert", hidden_size=256)
    head, other = (language_model.fresh_head(config, jax.random.key(seed)) for seed in (3, 4))
    shapes = {"dense.kernel": (256, 256)} | dict.fromkeys(("dense.bias", "norm.scale", "norm.bias"), (256,))
    assert {name: value.shape for name, value in head.items()} == shapes | {"bias": (40,)}
    assert all(value.dtype == jnp.float32 for value in head.values())
    assert abs(float(head["dense.kernel"].mean())) < 5e-4
    assert float(head["dense.kernel"].std()) == pytest.approx(0.02, rel=0.02)
    assert bool(jnp.all(head["norm.scale"] == 1))
    assert not any(bool(jnp.any(head[name])) for name in ("dense.bias", "norm.bias", "bias"))
    assert bool(jnp.any(other["dense.kernel"] != head["dense.kernel"]))


def test_a_head_is_read_by_its_names_and_by_others_in_use(with_head):
    folder, head, model_type = with_head
    model, names = load(str(folder)), NAMES[model_type]
    same(model.language_model, head)
    assert not any(name.startswith(("cls", "lm_head", "vocab")) for name in model.params)
    same(load(str(folder), 1).language_model, head)
    saved = load_file(folder / "model.safetensors")
    for name, value in head_tensors(head, model_type).items():
        np.testing.assert_array_equal(value, saved[name], err_msg=name)
    # The bias under its other name, the decoder stored although it is tied, and half precision.
    words = f"embeddings.{'tok' if model_type == 'modernbert' else 'word'}_embeddings.weight"
    half = np.ones(len(head["norm.scale"]), np.float16)
    given = {f"{DECODERS[model_type]}.bias": head["bias"], f"{DECODERS[model_type]}.weight": saved[words]}
    add_tensors(folder, given | {names["norm.scale"]: half}, *({names["bias"]} - given.keys()))
    same(load(str(folder)).language_model, head | {"norm.scale": np.float32(half)})


def test_a_head_that_lacks_a_part_or_has_another_shape_or_an_untied_decoder_is_not_read(with_head, tiny_bert):
    folder, head, model_type = with_head
    assert load(str(tiny_bert)).language_model is None
    tensors, config = normalize_names(load_file(folder / "model.safetensors")), encoder_config(model_type)
    for own, name in NAMES[model_type].items():
        if own in head.keys() - TABLES[model_type].head_may_lack:
            assert read_head({each: tensors[each] for each in tensors if each != name}, config) is None, name
        assert read_head(tensors | {name: np.zeros((7,), np.float32)}, config) is None, name
    assert read_head(tensors | {f"{DECODERS[model_type]}.weight": np.ones((40, 32), np.float32)}, config) is None


def test_a_decoder_that_is_said_to_be_untied_must_be_stored(tmp_path):
    """transformers starts it at random; stored, it may be the word embeddings all the same."""
    folder = write_model(tmp_path / "model", "modernbert", tie_word_embeddings=False)
    head = random_head(model_type="modernbert")
    add_tensors(folder, tensors_of(head, "modernbert"))
    assert load(str(folder)).language_model is None
    add_tensors(folder, {"decoder.weight": load_file(folder / "model.safetensors")["embeddings.tok_embeddings.weight"]})
    same(load(str(folder)).language_model, head)


def with_mask(folder, token):
    """Gives a tiny model's tokenizer a mask token, and then an ordinary one."""
    add_mask_token(folder, token)
    (*_, last) = tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    more = last | {"content": "newword", "id": 38, "special": False}
    edit_json(folder / "tokenizer.json", added_tokens=[*tokens, more])


def as_ours(folder, target):
    """A folder as our runs write one: the tokenizer that transformers reads, saved as `tokenizer.json`."""
    shutil.copytree(folder, target)
    read_backend(folder)[0].save(str(target / "tokenizer.json"))
    (target / MARKER).write_text('{"pooler": "cls", "head": false}')
    return target


def test_special_tokens_where_files_name_the_mask_token_or_the_tokenizer_s_class_alone_knows_it(tmp_path):
    roberta, plain, known = (write_model(tmp_path / x, x.split()[0]) for x in ("roberta", "bert", "bert known"))
    with pytest.raises(UserError, match="has no mask token"):
        special_tokens(roberta)
    with_mask(roberta, "<mask>")
    assert special_tokens(roberta) == (26, (0, 1, 2, 3, 26))
    hash(special_tokens(roberta))  # it is part of the key of a compiled step
    with_mask(plain, "@hidden")
    ours = as_ours(plain, tmp_path / "ours")
    assert special_tokens(ours) == (26, (0, 1, 2, 3, 26))
    edit_json(ours / "tokenizer_config.json", mask_token={"content": "@hidden", "lstrip": False})
    assert special_tokens(ours)[0] == 26
    (ours / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match="has no mask token"):
        special_tokens(ours)
    (ours / "special_tokens_map.json").write_text('{"mask_token": "@hidden"}')
    assert special_tokens(ours)[0] == 26
    with_mask(known, "[MASK]")
    ours = as_ours(known, tmp_path / "ours of a class")
    edit_json(ours / "tokenizer_config.json", mask_token=None)
    assert special_tokens(ours) == (26, (0, 1, 2, 3, 26))


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ENCODERS)
def test_logits_are_those_of_transformers(tmp_path, model_type):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForMaskedLM

    folder = write_model(tmp_path / "model", model_type, hidden_act="relu", layer_norm_eps=1e-3)
    kept = load_file(folder / "model.safetensors")
    prefix = TABLES[model_type].prefix
    prefixed = {prefix + name: value for name, value in kept.items() if not name.startswith("pooler")}
    tensors = prefixed | tensors_of(random_head(0, model_type), model_type)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ids, mask = (array[:, 0] for array in random_batch(5, 16))
    reference, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    reference.eval()
    with torch.no_grad():
        theirs = reference(torch.tensor(np.where(mask > 0, ids, 1)), torch.tensor(mask)).logits.numpy()
    reference.save_pretrained(tmp_path / "theirs")  # also with this version's names and tying
    shutil.copy(folder / "tokenizer.json", tmp_path / "theirs")
    model, again = load(str(folder)), load(str(tmp_path / "theirs"))
    graph, _ = build(model.config, with_head=False)
    run = jax.jit(lambda params: parameters.merge(graph, params).encoder(ids, mask)[-1].reshape(-1, 32))
    for each in (model, again):
        words = each.params[parameters.WORD_EMBEDDING]
        ours = language_model.logits(run(each.params), each.language_model, words, each.config).reshape(theirs.shape)
        np.testing.assert_allclose(np.asarray(ours)[mask > 0], theirs[mask > 0], atol=1e-4)
