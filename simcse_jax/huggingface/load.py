"""From a model's name to its parameters, its own pooler and its head.

A name is a folder in Hugging Face format, a hub id, or `package:NAME` for weights in an installed
Python package.
"""

import dataclasses
import re
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.huggingface.names import head_module, normalize_names, read_head, to_params
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.sentence_transformers import LISTING, read_modules
from simcse_jax.huggingface.tokenizer import MARKER
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.models.config import POOLERS, EncoderConfig
from simcse_jax.models.head import has_head
from simcse_jax.models.parameters import Arrays
from simcse_jax.storage import read_json

# The reference's released models state their pooler only in their names, not in their files.
REFERENCE_NAME = re.compile(r"(unsup|sup)-simcse-(bert|roberta)-(base|large)")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model read from a folder.

    `params` has a head's parameters if and only if the model has a head at test time. `pooler` is the model's own,
    None if its folder asks for one that this encoder lacks (`pooling` then describes it). `language_model` is the
    checkpoint's masked-language-model head (see `models.language_model`), None if it has none. `normalize` says
    whether its files ask for embeddings of unit length (sentence-transformers' module Normalize).
    """

    name: str
    folder: Path
    config: EncoderConfig
    params: Arrays
    pooler: str | None
    pooling: str
    max_length: int
    language_model: dict[str, np.ndarray] | None = None
    normalize: bool = False

    @property
    def has_head(self) -> bool:
        """Whether the model has a head at test time."""
        return has_head(self.params)


class ChosenPooler(NamedTuple):
    """How to make an embedding from hidden states."""

    pooler: str
    use_head: bool  # the model's head comes after the pooler


def choose_pooler(model: Pretrained, pooler: str | None) -> ChosenPooler:
    """The requested pooler (None: the model's own), and whether the model's head comes after it.

    The head belongs to the model's own pooler; `cls` means with the head if the model has one,
    `cls_before_pooler` never.

    Raises:
      UserError: when none was given and this encoder lacks the model's own.
    """
    chosen = pooler or model.pooler
    if chosen is None:
        raise UserError(f"{model.name}: its own pooling, {model.pooling}, is not supported; name another pooler")
    return ChosenPooler(chosen, model.has_head and chosen in ("cls", model.pooler) and chosen != "cls_before_pooler")


def load(name: str, num_layers: int = 0) -> Pretrained:
    """Loads a model by name.

    The folder's own pooler and head are read from our export's marker, or else from sentence-transformers'
    `modules.json`, or else from signs of the reference code: a `mlp.dense` layer, a `…ForCL` architecture, or the
    name of a released model (`sup-simcse-…` uses its pooler as a head, `unsup-simcse-…` had one only in training).
    The pooler in any other checkpoint is not a head.

    Args:
      name: a folder, a hub id, or `package:NAME`.
      num_layers: keep the first n layers; 0 keeps all.

    Raises:
      UserError: in one line, for anything wrong with it.
    """
    folder = resolve(name)
    marker = read_json(folder / MARKER) if (folder / MARKER).is_file() else None
    modules = read_modules(folder) if marker is None and (folder / LISTING).is_file() else None
    transformer = modules.transformer if modules else folder

    hf_config = _read_config(transformer, folder)
    config = EncoderConfig.from_hugging_face(hf_config, str(transformer / "config.json")).keep_layers(num_layers)
    tensors, path = read_weights(transformer)
    tensors = normalize_names(tensors) | (modules.dense if modules else {})

    if marker is not None:
        pooling, with_head = _read_marker(marker, folder / MARKER)
    elif modules:
        pooling, with_head = modules.pooling, bool(modules.dense)
    else:
        pooling, with_head = "cls", _reference_head(name, hf_config, tensors)
    head = head_module(tensors) if with_head else None
    if with_head and head is None:
        raise UserError(f"{path}: the model has a head, but its tensor 'pooler.dense.weight' is missing")
    return Pretrained(
        name,
        transformer,
        config,
        to_params(tensors, config, head, str(path)),
        modules.pooler if modules else pooling,
        pooling,
        max_length=_max_length(transformer, config),
        language_model=read_head(tensors, config),
        normalize=modules.normalize if modules else False,
    )


def _read_config(transformer: Path, folder: Path) -> dict[str, Any]:
    if not (transformer / "config.json").is_file():
        raise UserError(f"{folder}: no config.json; give a folder in Hugging Face format, a hub id or package:NAME")
    return read_json(transformer / "config.json")


def _read_marker(marker: dict[str, Any], path: Path) -> tuple[str, bool]:
    """The pooler and whether there is a head, for a folder that we wrote."""
    pooler, with_head = marker.get("pooler"), marker.get("head")
    if pooler not in POOLERS or not isinstance(with_head, bool):
        raise UserError(f"{path}: damaged: it must have 'pooler' and 'head'; export the model again")
    return pooler, with_head


def _reference_head(name: str, hf_config: dict[str, Any], tensors: Container[str]) -> bool:
    """Whether a model looks like one of the reference code's models with a head."""
    if released := REFERENCE_NAME.match(Path(name).name):
        return released[1] == "sup"
    return "mlp.dense.weight" in tensors or "ForCL" in str(hf_config.get("architectures"))


def _max_length(folder: Path, config: EncoderConfig) -> int:
    """The length stated in the model's files, if any: sentence-transformers writes it in one of two places."""
    for file, field in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        stated = read_json(folder / file).get(field) if (folder / file).is_file() else None
        if isinstance(stated, (int, float)) and stated >= 3:  # two tokens are special
            return int(min(stated, config.max_length))
    return config.max_length
