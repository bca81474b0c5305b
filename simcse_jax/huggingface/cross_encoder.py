"""Loads a cross-encoder: an encoder whose classification head scores two texts that it reads together.

The head of every model type is a few of `models.modules` after a pooler, so that what computes embeddings scores pairs.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.names import split_glove, split_step
from simcse_jax.host.storage import local_path, read_json
from simcse_jax.huggingface.load import Pretrained, max_length_of, read_config
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.sentence_transformers import (
    LISTING,
    SETTINGS_FILE,
    Settings,
    read_prompts,
    read_settings,
    transformer_fields,
    transformer_folder,
)
from simcse_jax.huggingface.tokenizer import class_of, stated
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.huggingface.weight_names import normalize_names, tensor_of, to_params
from simcse_jax.models import modules as arithmetic
from simcse_jax.models.config import GELU, Dense, EncoderConfig, LayerNorm, Module
from simcse_jax.models.model_types import FROM_ZERO
from simcse_jax.models.modules import ACTIVATIONS

KIND = "CrossEncoder"  # the model type in sentence-transformers' settings
CLASSIFIER = "ForSequenceClassification"  # the end of transformers' names of these classes
TASK = "sequence-classification"
TYPED = ("BertTokenizer", "ElectraTokenizer")  # the classes that give types unless a file says otherwise
EARLIER = "sbert_ce_default_activation_function"  # where sentence-transformers 3 wrote the activation


class ClassificationHead(NamedTuple):
    """The modules of a classification head in transformers' class, by their names."""

    dense: str
    out: str
    activation: str  # between them, of `ACTIVATIONS`; empty: the one that config.json names
    norm: str = ""  # after the activation, of ModernBERT


_BERT = ClassificationHead("pooler.dense", "classifier", "Tanh")
_ROBERTA = ClassificationHead("classifier.dense", "classifier.out_proj", "Tanh")
HEADS = {
    "bert": _BERT,
    "ernie": _BERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
    "electra": _ROBERTA._replace(activation="GELU"),
    "distilbert": ClassificationHead("pre_classifier", "classifier", "ReLU"),
    "modernbert": ClassificationHead("head.dense", "classifier", "", norm="head.norm"),
}
OWN_ACTIVATIONS = {**dict.fromkeys(GELU, "GELU"), "relu": "ReLU", "silu": "SiLU", "swish": "SiLU"}  # of ModernBERT
POOLERS = {"cls": "cls", "mean": "avg"}  # its `classifier_pooling`


def is_cross_encoder(name: str) -> bool:
    """Whether a folder, or a model of the hub, says that it is one; other names of models are not."""
    if not local_path(name).is_dir() and (split_glove(name) or split_step(name).step is not None or ":" in name):
        return False
    folder = resolve(name)
    if (folder / SETTINGS_FILE).is_file() and read_settings(folder).model_type == KIND:
        return True
    architectures = stated(folder, "config.json").get("architectures")
    return not (folder / LISTING).is_file() and CLASSIFIER in str(architectures)


def load_cross_encoder(name: str) -> Pretrained:
    """Loads a cross-encoder by name: a folder in Hugging Face format, or a hub id.

    Its `modules` end in the scores: one for each label, after the activation that its files name, which is a sigmoid
    for a single label unless they say otherwise.

    Raises:
      UserError: when it is none, it has parts that this package lacks, or its files are damaged.
    """
    folder = resolve(name)
    if not is_cross_encoder(name):
        raise UserError(f"{name}: is not a cross-encoder, such as cross-encoder/ms-marco-MiniLM-L6-v2")
    transformer = transformer_folder(folder) if (folder / LISTING).is_file() else folder
    if (folder / LISTING).is_file() and (more := read_json(folder / LISTING, kind=list)[1:]):
        raise UserError(f"{folder / LISTING}: a cross-encoder with the module {more[0].get('type')} is not supported")
    if (task := transformer_fields(transformer).get("transformer_task", TASK)) != TASK:
        raise UserError(f"{transformer}: its transformer_task is {task!r:.60}; only {TASK} is supported")
    where = str(transformer / "config.json")
    fields = read_config(transformer, folder)
    config = EncoderConfig.from_hugging_face(fields, where)
    if config.model_type not in HEADS:
        raise UserError(f"{where}: cross-encoders of the type {config.model_type} are not supported")
    tensors, path = read_weights(transformer)
    tensors = normalize_names(tensors)
    modules, weights = _read_head(tensors, HEADS[config.model_type], config, fields, (where, str(path)))
    labels = modules[-1].size if isinstance(modules[-1], Dense) else 0
    modules[-1] = Dense(_activation(folder, fields, labels), labels, inputs=config.hidden_size)
    pooling = fields.get("classifier_pooling", "cls") if config.model_type == "modernbert" else "cls"
    if pooling not in POOLERS:
        raise UserError(f"{where}: classifier_pooling is {pooling!r:.60}, not one of {', '.join(POOLERS)}")
    return Pretrained(
        *(name, transformer, dataclasses.replace(config, modules=tuple(modules))),
        *({**to_params(tensors, config, None, str(path)), **weights}, POOLERS[pooling]),
        max_length_of(transformer, config),
        settings=Settings(*read_prompts(stated(folder, SETTINGS_FILE), folder / SETTINGS_FILE), model_type=KIND),
    )


def reads_types(model: Pretrained) -> bool:
    """Whether the encoder reads to which of two texts a token belongs: it has types, and its tokenizer gives them."""
    inputs, kind = stated(model.folder, "tokenizer_config.json").get("model_input_names"), class_of(model.folder)
    by_class = kind in TYPED if kind else model.config.positions == FROM_ZERO
    gives_types = by_class if inputs is None else "token_type_ids" in inputs
    return model.config.type_vocab_size > 1 and gives_types


def _read_head(
    tensors: Mapping[str, np.ndarray],
    head: ClassificationHead,
    config: EncoderConfig,
    fields: Mapping[str, Any],
    files: tuple[str, str],
) -> tuple[list[Module], dict[str, np.ndarray]]:
    """The modules of a head, with their weights; `files` are those of the config and of the weights, for errors."""
    where, path = files
    size = config.hidden_size

    def read(tensor: str, *shape: int | None) -> np.ndarray:
        return np.array(tensor_of(tensors, tensor, shape, path))  # not the file's

    def bias(module: str, count: int) -> np.ndarray:
        name = f"{module}.bias"
        return read(name, count) if name in tensors else np.zeros(count, np.float32)

    in_config = str(fields.get("classifier_activation", "gelu"))
    if not (activation := head.activation or OWN_ACTIVATIONS.get(in_config, "")):
        raise UserError(f"{where}: classifier_activation {in_config:.60} is not supported")
    modules: list[Module] = [Dense(activation, size, inputs=size)]
    weights = [{"kernel": read(f"{head.dense}.weight", size, size).T, "bias": bias(head.dense, size)}]
    if head.norm:
        if config.layer_norm_eps != arithmetic.LAYER_NORM_EPSILON:
            raise UserError(f"{where}: norm_eps is {config.layer_norm_eps}; heads with 1e-05 alone are supported")
        modules.append(LayerNorm(inputs=size))
        weights.append({"scale": read(f"{head.norm}.weight", size), "bias": bias(head.norm, size)})
    kernel = read(f"{head.out}.weight", None, size)
    modules.append(Dense("Identity", len(kernel), inputs=size))
    weights.append({"kernel": kernel.T, "bias": bias(head.out, len(kernel))})
    named = ((f"{arithmetic.PREFIX}{number}.", module_weights) for number, module_weights in enumerate(weights))
    return modules, {prefix + name: value for prefix, module_weights in named for name, value in module_weights.items()}


def _activation(folder: Path, fields: Mapping[str, Any], labels: int) -> str:
    """The activation of the scores: the files' own choice, or else a sigmoid for one label and none for several."""
    section = fields.get("sentence_transformers")
    section = section if isinstance(section, dict) else {}
    in_config = section.get("activation_fn", fields.get(EARLIER))
    for path, name in ((SETTINGS_FILE, stated(folder, SETTINGS_FILE).get("activation_fn")), ("config.json", in_config)):
        if isinstance(name, str) and name.startswith("torch."):  # others are code, which is not run
            activation = name.rpartition(".")[2]
            if activation not in ACTIVATIONS:
                raise UserError(f"{folder / path}: the activation {name!r:.80} is not supported")
            return activation
    return "Sigmoid" if labels == 1 else "Identity"
