"""Reads the modules and settings of a sentence-transformers folder. `write.py` writes them."""

import dataclasses
import enum
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json
from simcse_jax.huggingface.module_folders import (
    Unsupported,
    is_relu,
    read_cnn,
    read_layers,
    read_tensors,
    read_word_weights,
)
from simcse_jax.models.config import SIMILARITIES, Convolutions, Cut, Dense, LayerNorm, Module, Normalize, output_size
from simcse_jax.models.model_types import flag
from simcse_jax.models.modules import ACTIVATIONS, PREFIX
from simcse_jax.models.pooling import JOIN

LISTING = "modules.json"  # lists a folder's modules
SETTINGS_FILE = "config_sentence_transformers.json"
NO_PROMPTS = {"query": "", "document": ""}  # every model has these two; the file may fill them
DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # the names that sentence-transformers tries, in this order
USUAL_TYPE = "SentenceTransformer"  # the kind of a model whose file has no `model_type`


class Kind(enum.StrEnum):
    """The supported modules, by the names of their classes."""

    TRANSFORMER = "Transformer"
    CNN = "CNN"
    WORDS = "WordEmbeddings"
    LAYERS = "WeightedLayerPooling"
    WORD_WEIGHTS = "WordWeights"
    POOLING = "Pooling"
    DENSE = "Dense"
    LAYER_NORM = "LayerNorm"
    DROPOUT = "Dropout"  # does nothing without training
    NORMALIZE = "Normalize"


AFTER_POOLING = {Kind.DENSE, Kind.LAYER_NORM, Kind.DROPOUT, Kind.NORMALIZE}
# The packages that these classes have been in, and the files of each class in them.
PACKAGES = ("models", "sentence_transformer.modules", "base.modules")
CLASSES = {
    f"sentence_transformers.{package}.{file}{kind}": kind
    for package in PACKAGES
    for kind in Kind
    for file in ("", f"{kind}.", re.sub("(?<=[a-z])(?=[A-Z])", "_", kind).lower() + ".")
}
# The switches `pooling_mode_…` of a pooling module, and their poolers, in the order of their concatenation.
POOLING_SWITCHES = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "avg",
    "mean_sqrt_len_tokens": "avg_sqrt",
    "weightedmean_tokens": "avg_weighted",
    "lasttoken": "last",
}
# And the values of the field `pooling_mode`, which newer versions write instead.
POOLING_MODES = POOLING_SWITCHES | {"cls": "cls", "max": "max", "mean": "avg", "weightedmean": "avg_weighted"}
# The transformer's own file; the first that there is. The others are of earlier versions.
TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# What its fields must be, if they are there: anything else changes the embeddings.
TRANSFORMER_FIELDS: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    **dict.fromkeys(("processing_kwargs", "query_length", "document_length", "query_expansion"), None),
    **dict.fromkeys(("tokenizer_name_or_path", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")),
}
# Arguments of the model that change no embedding, since ours are computed in float32.
NEUTRAL = {"trust_remote_code", "attn_implementation", "add_pooling_layer", "dtype", "torch_dtype"}
HIDDEN_SIZES = ("hidden_size", "dim", "n_embd")  # the usual name, DistilBERT's and Nomic's
Weights = dict[str, np.ndarray]


class Modules(NamedTuple):
    """The modules after the encoder."""

    convolutions: Convolutions | None  # between the encoder and the pooler
    convolution_weights: Weights  # by our names
    pooler: str  # one of ours, or several joined by +
    dense: Weights  # the head's tensors, by the names of BERT's pooler; empty without a head
    after: tuple[Module, ...]  # what comes after pooler and head
    weights: Weights  # of these
    include_prompt: bool  # whether the pooler reads a prompt's tokens
    normalize: bool  # whether embeddings have unit length in the end


class _Entry(NamedTuple):
    """A line of `modules.json`."""

    kind: Kind | None  # None: not supported
    type: str
    path: Path


def transformer_folder(folder: Path) -> Path:
    """The folder of the encoder, which is the first module."""
    first = _listing(folder)[0]
    if first.kind != Kind.TRANSFORMER:
        raise UserError(f"{folder / LISTING}: its first module is {first.type}; only Transformer is supported there")
    return first.path


def transformer_fields(folder: Path) -> dict[str, Any]:
    """The fields of the encoder's own file; none where there is no such file."""
    return read_json(path) if (path := _transformer_file(folder)) else {}


def _transformer_file(folder: Path) -> Path | None:
    return next((folder / name for name in TRANSFORMER_FILES if (folder / name).is_file()), None)


def words_folder(folder: Path) -> Path | None:
    """The folder of the word vectors, if they are the first module; None for any other model."""
    first = _listing(folder)[0] if (folder / LISTING).is_file() else None
    return first.path if first and first.kind == Kind.WORDS else None


def has_modules(folder: Path) -> bool:
    """Whether all modules that are listed are there."""
    return all(entry.path.is_dir() for entry in _listing(folder) if entry.kind not in (Kind.NORMALIZE, Kind.DROPOUT))


def read_modules(folder: Path, size_of_words: int = 0) -> Modules:
    """Reads what a folder's `modules.json` lists after the encoder, or after word vectors of that size.

    Raises:
      Unsupported: naming a module, or a field of one, that this package lacks.
    """
    first, *entries = _listing(folder)
    config: dict[str, Any] = {}
    if not size_of_words:
        _check_transformer(first.path)
        config = read_json(first.path / "config.json")
    for entry in entries:
        if entry.kind in (None, Kind.TRANSFORMER, Kind.WORDS):
            raise Unsupported(f"{folder / LISTING}: the module {entry.type} is not supported")
    hidden = size_of_words or int(next((config[name] for name in HIDDEN_SIZES if name in config), 0))
    convolutions, convolution_weights, entries = _read_convolutions(entries, 0 if size_of_words else hidden)
    before = None
    if entries and entries[0].kind in (Kind.LAYERS, Kind.WORD_WEIGHTS) and not (convolutions or size_of_words):
        before, *entries = entries
    kinds = [entry.kind for entry in entries]
    if kinds[:1] != [Kind.POOLING] or not AFTER_POOLING.issuperset(kinds[1:]):
        raise Unsupported(
            f"{folder / LISTING}: only one Pooling directly after Transformer, CNN, WeightedLayerPooling or "
            "WordWeights is supported"
        )
    pooler, include_prompt = _read_pooling(entries[0].path)
    if size_of_words and pooler != "avg":
        raise Unsupported(f"{folder / LISTING}: of the poolings of word vectors only the mean is supported")
    if before and before.kind == Kind.WORD_WEIGHTS:
        pooler = read_word_weights(before.path, pooler)
    elif before and config.get("output_hidden_states") is True:  # otherwise the module does nothing
        pooler = read_layers(before.path, pooler)
    rest = [entry for entry in entries[1:] if entry.kind != Kind.DROPOUT]
    normalize = bool(rest) and rest[-1].kind == Kind.NORMALIZE
    if normalize:
        del rest[-1]
    size = (convolutions.size if convolutions else hidden) * len(pooler.split(JOIN))
    dense: Weights = {}
    if rest and rest[0].kind == Kind.DENSE and not size_of_words and not convolutions:
        module, weights = _read_dense(rest[0].path, size)
        if module == Dense("Tanh", hidden, inputs=hidden):
            dense = {"pooler.dense.weight": weights["kernel"].T, "pooler.dense.bias": weights["bias"]}
            del rest[0]
    after, weights = _read_rest(rest, size)
    return Modules(convolutions, convolution_weights, pooler, dense, after, weights, include_prompt, normalize)


def _read_convolutions(entries: list[_Entry], hidden: int) -> tuple[Convolutions | None, Weights, list[_Entry]]:
    """The convolutions that come first, if there are any, their weights, and the modules after them."""
    if not hidden or not entries or entries[0].kind != Kind.CNN:  # those of word vectors are not read here
        return None, {}, entries
    convolutions, weights = read_cnn(entries[0].path, hidden)
    if entries[1:] and entries[1].kind == Kind.DENSE and is_relu(entries[1].path, convolutions.size):
        return dataclasses.replace(convolutions, activation="relu"), weights, entries[2:]
    return convolutions, weights, entries[1:]


def _listing(folder: Path) -> list[_Entry]:
    path = folder / LISTING
    entries = []
    for number, module in enumerate(read_json(path, kind=list)):
        name, place = (module.get("type"), module.get("path", "")) if isinstance(module, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(place, str):
            raise UserError(f"{path}: damaged: module {number} has no type and path")
        if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
            raise UserError(f"{path}: the path of module {number}, {place!r:.60}, is outside of the folder")
        entries.append(_Entry(CLASSES.get(name), name, folder / place))
    if not entries:
        raise UserError(f"{path}: lists no modules")
    return entries


def _check_transformer(folder: Path) -> None:
    fields, path = transformer_fields(folder), _transformer_file(folder) or folder
    for field, only in TRANSFORMER_FIELDS.items():
        if (value := fields.get(field)) and value != only:
            raise Unsupported(f"{path}: {field} is {value!r:.80}, which is not supported")
    for field in ("model_args", "model_kwargs"):
        if other := {*(fields.get(field) or ())} - NEUTRAL:
            raise Unsupported(f"{path}: {field} has {min(map(str, other)):.60}, which is not supported")
    if (folder / "adapter_config.json").is_file():
        raise Unsupported(f"{folder / 'adapter_config.json'}: an adapter; merge it into its model first")


def _read_pooling(folder: Path) -> tuple[str, bool]:
    """The pooler that corresponds to a pooling module, and whether it reads a prompt's tokens."""
    path = folder / "config.json"
    config = read_json(path)
    prefix = "pooling_mode_"
    modes = config.get("pooling_mode")
    if not modes:
        on = [name.removeprefix(prefix) for name, value in config.items() if value and name.startswith(prefix)]
        modes = sorted(on, key=[*POOLING_SWITCHES, *on].index) or ["mean"]
    modes = modes if isinstance(modes, list) else [modes]
    for mode in map(str, modes):
        if mode not in POOLING_MODES:
            raise Unsupported(f"{path}: the pooling {mode:.60} is not supported")
    return JOIN.join(POOLING_MODES[mode] for mode in modes), flag(config, "include_prompt", str(path), True)


def _read_rest(entries: Sequence[_Entry], size: int) -> tuple[tuple[Module, ...], Weights]:
    """The modules after pooler and head, and all their weights; `size` is that of the embeddings before them."""
    after: list[Module] = []
    weights: Weights = {}
    for number, entry in enumerate(entries):
        module: Module = Normalize()
        parts: Weights = {}
        if entry.kind == Kind.DENSE:
            module, parts = _read_dense(entry.path, size)
        elif entry.kind == Kind.LAYER_NORM:
            tensors = read_tensors(entry.path, {"norm.weight": (size,), "norm.bias": (size,)})
            module, parts = LayerNorm(inputs=size), {"scale": tensors["norm.weight"], "bias": tensors["norm.bias"]}
        after.append(module)
        weights |= {f"{PREFIX}{number}.{name}": value for name, value in parts.items()}
        size = output_size([module], size)
    return tuple(after), weights


def _read_dense(folder: Path, size: int) -> tuple[Dense, Weights]:
    path = folder / "config.json"
    config = read_json(path)
    for field in ("module_input_name", "module_output_name"):
        if config.get(field) not in (None, "sentence_embedding"):
            raise Unsupported(f"{path}: {field} is {config[field]!r:.60}; only 'sentence_embedding' is supported")
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    package, _, activation = str(name).rpartition(".")
    packages = ("torch.nn", "torch.nn.modules.linear" if activation == "Identity" else "torch.nn.modules.activation")
    if package not in packages or activation not in ACTIVATIONS:
        raise Unsupported(f"{path}: the activation {name!r:.80} is not supported")
    after, bias, residual = config.get("out_features"), bool(config.get("bias", True)), bool(config.get("use_residual"))
    shapes: dict[str, tuple[Any, ...]] = {"linear.weight": (after, size)}
    shapes |= {"linear.bias": (after,)} if bias else {}
    shapes |= {"residual.weight": (after, size)} if residual and after != size else {}
    tensors = read_tensors(folder, shapes)
    names = {"linear.weight": "kernel", "linear.bias": "bias", "residual.weight": "residual"}
    weights = {names[name]: value.T for name, value in tensors.items()}
    return Dense(activation, len(tensors["linear.weight"]), residual, inputs=size, bias=bias), weights


def describe(modules: Sequence[Module]) -> str:
    """Modules in a few words, for messages."""
    sizes = (f" to {module.size}" if isinstance(module, Dense | Cut) else "" for module in modules)
    return ", ".join(type(module).__name__ + size for module, size in zip(modules, sizes, strict=True))


class Settings(NamedTuple):
    """The contents of a model's settings file."""

    prompts: dict[str, str] = NO_PROMPTS  # texts to put before sentences, by name
    default_prompt_name: str | None = None  # the one that `encode` uses; None: no prompt
    similarity: str = "cosine"  # of `SIMILARITIES`
    truncate_dim: int | None = None  # embeddings keep so many elements; None: all
    model_type: str = USUAL_TYPE  # other kinds of models, such as CrossEncoder, have no embeddings of sentences


DEFAULTS = Settings()  # of a folder without the file


def read_settings(folder: Path) -> Settings:
    """Reads the file of a model's folder; the defaults if there is none."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return DEFAULTS
    fields = read_json(path)
    if (kind := str(fields.get("model_type") or USUAL_TYPE)) != USUAL_TYPE:
        return Settings(model_type=kind)  # its prompts are not for embeddings
    prompts, default = read_prompts(fields, path)
    similarity = fields.get("similarity_fn_name") or SIMILARITIES[0]
    if similarity not in SIMILARITIES:
        raise UserError(f"{path}: similarity_fn_name is {similarity!r:.60}; supported are {', '.join(SIMILARITIES)}")
    size = fields.get("truncate_dim")
    if size is not None and (type(size) is not int or size < 1):
        raise UserError(f"{path}: truncate_dim is {size!r:.60}; it must be a whole number, 1 or more")
    return Settings(prompts, default, similarity, size)


def read_prompts(fields: dict[str, Any], path: Path) -> tuple[dict[str, str], str | None]:
    """The prompts in the fields of the file, and the name of the one that is used by default."""
    prompts = fields.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError(f"{path}: prompts is {prompts!r:.60}; it must have a text for each name")
    prompts = NO_PROMPTS | {name: text or "" for name, text in prompts.items()}
    default = fields.get("default_prompt_name")
    if default is not None and default not in [*prompts]:
        raise UserError(f"{path}: default_prompt_name is {default!r:.60}, but its prompts are {', '.join(prompts)}")
    return prompts, default
