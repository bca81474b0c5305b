"""Writes models in Hugging Face format, with the modules of sentence-transformers."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.choices import MASK_TOKEN, POOLERS
from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json, write_json
from simcse_jax.host.version import __version__
from simcse_jax.huggingface.load import NEEDS_MODULES, Pretrained
from simcse_jax.huggingface.module_folders import CONFIG, cnn_module, pooling_for, relu_module, word_weights_module
from simcse_jax.huggingface.sentence_transformers import LISTING, POOLING_SWITCHES, SETTINGS_FILE, Kind
from simcse_jax.huggingface.tokenizer import FILES, MARKER, WORDS_FILE, Tokenizer, stated
from simcse_jax.huggingface.weight_files import write_safetensors
from simcse_jax.huggingface.weight_names import NAMES, head_tensors, to_tensors
from simcse_jax.huggingface.word_vectors import write_word_embeddings
from simcse_jax.models.config import Dense, LayerNorm
from simcse_jax.models.convolutions import PREFIX as CONVOLUTIONS
from simcse_jax.models.decoders import both_ways
from simcse_jax.models.model_types import MODEL_TYPES, for_transformers
from simcse_jax.models.modules import PREFIX as MODULES
from simcse_jax.models.parameters import WORD_EMBEDDING, subset

TYPES = "sentence_transformers.models"  # all versions of sentence-transformers find their modules here
CONFIG_FILES = {Kind.CNN: CONFIG}  # of a module's fields; config.json for the others
PLACES = {"_name_or_path", "name_or_path", "tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file"}


class Saved(NamedTuple):
    """A module of sentence-transformers that comes after the transformer."""

    kind: Kind
    fields: dict[str, Any]  # its config.json
    weights: dict[str, np.ndarray]


def write_model(model: Pretrained, folder: Path) -> None:
    """Writes a model's files into an empty folder, for transformers, sentence-transformers and `load`.

    The head becomes the pooler's dense layer (as in the reference's conversion) and a dense module. A language-model
    head is kept for `AutoModelForMaskedLM`, and for a run that starts from the folder. Where there is no head, a pooler
    that transformers would draw at random, with a warning, becomes the tanh of the first token.
    """
    pooler = model.pooler
    if pooler not in POOLERS:
        raise UserError(model.refusal or f"{model.name}: the pooler {pooler} cannot be written")
    if model.vocabulary is not None:
        return _write_words(model, folder)
    encoder = {name: value for name, value in model.params.items() if not name.startswith((CONVOLUTIONS, MODULES))}
    tensors = to_tensors(encoder, model.config)
    names = NAMES[model.config.model_type]
    if names.has_pooler and not model.has_head:
        tensors[f"{names.pooler}.weight"] = np.eye(model.config.hidden_size, dtype=np.float32)
        tensors[f"{names.pooler}.bias"] = np.zeros(model.config.hidden_size, np.float32)
    tokenizer = model.tokenizer
    modules = _modules(model, tokenizer, pooler, tensors)
    _write_modules(modules, folder)
    lower = {"do_lower_case": tokenizer.lowers_first}
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": model.max_length} | lower)
    write_json(folder / SETTINGS_FILE, _settings(model))
    fields: dict[str, Any] = {"architectures": [names.architecture]}
    if any(module.kind == Kind.LAYERS for module in modules):
        fields["output_hidden_states"] = True
    write_encoder_files(model, tokenizer, folder, pooler, model.has_head, **fields)
    _forget_places(folder)
    head = head_tensors(model.language_model or {}, model.config.model_type)
    write_safetensors(folder / "model.safetensors", tensors | head)


def write_encoder_files(
    model: Pretrained, tokenizer: Tokenizer, target: Path, pooler: str, has_head: bool, **fields: Any
) -> None:
    """Writes the encoder's `config.json`, its tokenizer, and the marker with its pooler and whether it has a head.

    `fields` are set in `config.json`, in addition to its own.
    """
    marker = {"pooler": pooler, "head": has_head, "version": __version__}
    needed = {"convolutions": model.config.convolutions, "modules": model.config.modules or not model.include_prompt}
    write_json(target / MARKER, marker | {name: True for name in NEEDS_MODULES if needed[name]})
    if model.vocabulary is not None:
        sizes = {"vocab_size": model.config.vocab_size, "hidden_size": model.config.hidden_size}
        write_json(target / "config.json", {"model_type": model.config.model_type} | sizes)
        return tokenizer.save(target / WORDS_FILE)
    path = model.folder / "config.json"
    config = for_transformers(read_json(path), model.config.num_layers, str(path))
    names = MODEL_TYPES[model.config.model_type].names
    config[names.get("num_hidden_layers", "num_hidden_layers")] = model.config.num_layers
    if model.config.layer_groups:
        config["num_hidden_groups"] = model.config.layer_groups
    if model.config.guesses_next and not model.config.causal:
        config |= both_ways(model.config.model_type)
    if model.language_model and not model.config.guesses_next:  # ours has a bias of each word, and the word embeddings
        config |= {field: True for field in ("decoder_bias", "tie_word_embeddings") if config.get(field) is False}
    config.pop("torch_dtype", None)
    config["dtype"] = "float32"  # whatever the source's was: transformers obeys this field
    write_json(target / "config.json", config | fields)
    for name in FILES:
        if (model.folder / name).is_file():
            shutil.copyfile(model.folder / name, target / name)
    tokenizer.save(target / "tokenizer.json")
    if tokenizer.template is not None:
        _keep_template(target, tokenizer)


def _keep_template(folder: Path, tokenizer: Tokenizer) -> None:
    """Makes transformers read `tokenizer.json` as it is: the class of a model type makes its own post-processor."""
    fields = stated(folder, "tokenizer_config.json")
    special = {"pad_token": tokenizer.token(tokenizer.pad_token_id)}
    special |= {"mask_token": tokenizer.mask_token} if tokenizer.mask_token else {}
    kept = {name: value for name, value in fields.items() if name not in ("add_bos_token", "add_eos_token")}
    write_json(folder / "tokenizer_config.json", special | kept | {"tokenizer_class": "PreTrainedTokenizerFast"})


def _write_words(model: Pretrained, folder: Path) -> None:
    """Word vectors and their average, for sentence-transformers and `load`; transformers has no such model."""
    assert model.vocabulary is not None
    words = folder / f"0_{Kind.WORDS}"
    words.mkdir()
    write_word_embeddings(words, model.vocabulary, np.asarray(model.params[WORD_EMBEDDING]), model.max_length)
    pooling = {"word_embedding_dimension": model.config.hidden_size, "pooling_mode_mean_tokens": True}
    _write_modules([Saved(Kind.POOLING, pooling, {}), *_modules_after(model)], folder, (words.name, Kind.WORDS))
    write_json(folder / SETTINGS_FILE, _settings(model))
    write_json(folder / MARKER, {"pooler": model.pooler, "head": False, "version": __version__})


def _modules(model: Pretrained, tokenizer: Tokenizer, pooler: str, tensors: dict[str, np.ndarray]) -> list[Saved]:
    modules = []
    size: dict[str, Any] = {"word_embedding_dimension": model.config.token_size}
    if model.config.convolutions:
        modules.append(Saved(Kind.CNN, *cnn_module(model.config.convolutions, model.config.hidden_size, model.params)))
        if model.config.convolutions.activation == "relu":
            modules.append(Saved(Kind.DENSE, *relu_module(model.config.convolutions)))
    layers = model.config.num_layers
    over_tokens, weights = pooling_for(pooler, layers)
    if weights is not None:
        fields = size | {"layer_start": 0, "num_hidden_layers": layers}
        modules.append(Saved(Kind.LAYERS, fields, {"layer_weights": weights}))
    if over_tokens == MASK_TOKEN:
        assert tokenizer.mask_token is not None  # the pooler needs one
        words = word_weights_module(tokenizer.vocabulary(model.config.vocab_size), tokenizer.mask_token)
        modules.append(Saved(Kind.WORD_WEIGHTS, *words))
        over_tokens = "avg"
    switches = {f"pooling_mode_{name}": stands_for == over_tokens for name, stands_for in POOLING_SWITCHES.items()}
    include = {} if model.include_prompt else {"include_prompt": False}
    modules.append(Saved(Kind.POOLING, size | switches | include, {}))
    if model.has_head:
        fields = {"in_features": model.config.hidden_size, "out_features": model.config.hidden_size, "bias": True}
        fields |= {"activation_function": "torch.nn.modules.activation.Tanh"}
        pooling_layer = NAMES[model.config.model_type].pooler
        dense = {f"linear.{part}": tensors[f"{pooling_layer}.{part}"] for part in ("weight", "bias")}
        modules.append(Saved(Kind.DENSE, fields, dense))
    return [*modules, *_modules_after(model)]


def _modules_after(model: Pretrained) -> list[Saved]:
    """The modules after pooler and head."""
    modules = []
    for number, module in enumerate(model.config.modules):
        weights = {name: np.asarray(value) for name, value in subset(model.params, f"{MODULES}{number}.").items()}
        if isinstance(module, Dense):
            package = "linear" if module.activation == "Identity" else "activation"
            fields: dict[str, Any] = {"in_features": module.inputs, "out_features": module.size, "bias": module.bias}
            fields |= {"activation_function": f"torch.nn.modules.{package}.{module.activation}"}
            fields |= {"use_residual": True} if module.residual else {}
            names = {"kernel": "linear.weight", "bias": "linear.bias", "residual": "residual.weight"}
            tensors = {names[name]: np.ascontiguousarray(value.T) for name, value in weights.items()}
            modules.append(Saved(Kind.DENSE, fields, tensors))
        elif isinstance(module, LayerNorm):
            tensors = {"norm.weight": weights["scale"], "norm.bias": weights["bias"]}
            modules.append(Saved(Kind.LAYER_NORM, {"dimension": module.inputs}, tensors))
        else:
            modules.append(Saved(Kind.NORMALIZE, {}, {}))
    return modules + ([Saved(Kind.NORMALIZE, {}, {})] if model.normalize else [])


def _settings(model: Pretrained) -> dict[str, Any]:
    settings = model.settings
    fields: dict[str, Any] = {"similarity_fn_name": settings.similarity}
    if any(settings.prompts.values()) or settings.default_prompt_name:
        fields |= {"prompts": dict(settings.prompts), "default_prompt_name": settings.default_prompt_name}
    return fields | ({"truncate_dim": settings.truncate_dim} if settings.truncate_dim else {})


def _write_modules(modules: list[Saved], folder: Path, first: tuple[str, Kind] = ("", Kind.TRANSFORMER)) -> None:
    """Writes a folder for each module, and `modules.json`; the transformer, its first one, is the folder itself."""
    listing = [first]
    for number, module in enumerate(modules, 1):
        path = f"{number}_{module.kind}"
        (folder / path).mkdir()
        write_json(folder / path / CONFIG_FILES.get(module.kind, "config.json"), module.fields)
        if module.weights:
            write_safetensors(folder / path / "model.safetensors", module.weights)
        listing.append((path, module.kind))
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"{TYPES}.{kind}"}
        for index, (path, kind) in enumerate(listing)
    ]
    write_json(folder / LISTING, entries)


def _forget_places(folder: Path) -> None:
    """Removes the paths of the original model, which transformers writes into files that it saves."""
    for name in ("config.json", "tokenizer_config.json"):
        content = stated(folder, name)
        if content.keys() & PLACES:
            write_json(folder / name, {field: value for field, value in content.items() if field not in PLACES})
