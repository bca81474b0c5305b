"""From a model's name to its parameters, its own pooler and its head.

A name is a folder in Hugging Face format, a hub id, or `package:NAME` for weights that an installed
Python package ships.
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
from simcse_jax.storage import read_json

# The reference's released models say nothing of their pooler in their files, only in their names.
REFERENCE_NAME = re.compile(r"(unsup|sup)-simcse-(bert|roberta)-(base|large)")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model as it lies in a folder.

    `params` has a head's parameters if and only if the model has a head at test time. `pooler` is the model's own,
    None where its folder asks for one that this encoder lacks (`pooling` then says which). `language_model` is the
    checkpoint's masked-language-model head (see `models.language_model`), None where it has none. `normalize` says
    whether its files ask for embeddings of unit length (sentence-transformers' module Normalize).
    """

    name: str
    folder: Path
    config: EncoderConfig
    params: dict[str, np.ndarray]
    pooler: str | None
    pooling: str
    max_length: int
    language_model: dict[str, np.ndarray] | None = None
    normalize: bool = False

    @property
    def has_head(self) -> bool:
        """Whether a head belongs to the model at test time."""
        return has_head(self.params)


class ChosenPooler(NamedTuple):
    """How hidden states become an embedding."""

    pooler: str
    use_head: bool  # the model's head comes after the pooler


def choose_pooler(model: Pretrained, pooler: str | None) -> ChosenPooler:
    """The pooler that is asked for, the model's own for None, and whether the model's head comes after it.

    The head belongs to the model's own pooler; `cls` means with the head if the model has one,
    `cls_before_pooler` never.

    Raises:
      UserError: when none was given and the model's own is one that this encoder lacks.
    """
    if pooler is None and model.pooler is None:
        raise UserError(f"{model.name}: its own pooling is {model.pooling}, which this encoder lacks; name a pooler")
    chosen = pooler or model.pooler
    return ChosenPooler(chosen, model.has_head and chosen in ("cls", model.pooler) and chosen != "cls_before_pooler")


def load(name: str, num_layers: int = 0) -> Pretrained:
    """Loads a model by name.

    What the folder says of its own pooler and head is taken from our export's marker, else from
    sentence-transformers' `modules.json`, else from the marks of the reference code: a `mlp.dense` layer, a
    `…ForCL` architecture, or the name of a released model (`sup-simcse-…` has its pooler for a head,
    `unsup-simcse-…` had it in training only). The pooler that any other checkpoint carries is not a head.

    Args:
      name: a folder, a hub id, or `package:NAME`.
      num_layers: keep the first n layers; 0 keeps all.

    Raises:
      UserError: in one line, for whatever is wrong with it.
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
        pooler, with_head = _read_marker(marker, folder / MARKER)
    elif modules:
        pooler, with_head = modules.pooler, bool(modules.dense)
    else:
        pooler, with_head = "cls", _reference_head(name, hf_config, tensors)
    head = head_module(tensors) if with_head else None
    if with_head and head is None:
        raise UserError(f"{path}: the model has a head, but its tensor 'pooler.dense.weight' is missing")
    return Pretrained(
        name,
        transformer,
        config,
        to_params(tensors, config, head, str(path)),
        pooler,
        pooling=modules.pooling if modules else pooler,
        max_length=_max_length(transformer, config),
        language_model=read_head(tensors, config),
        normalize=modules.normalize if modules else False,
    )


def _read_config(transformer: Path, folder: Path) -> dict[str, Any]:
    if not (transformer / "config.json").is_file():
        raise UserError(
            f"{folder}: no config.json; a model is a folder in Hugging Face format, a hub id or package:NAME"
        )
    return read_json(transformer / "config.json")


def _read_marker(marker: dict[str, Any], path: Path) -> tuple[str, bool]:
    """The pooler of a folder that we wrote, and whether it has a head."""
    pooler, with_head = marker.get("pooler"), marker.get("head")
    if pooler not in POOLERS or not isinstance(with_head, bool):
        raise UserError(f"{path}: damaged; it must tell the pooler and the head. Export the model again")
    return pooler, with_head


def _reference_head(name: str, hf_config: dict[str, Any], tensors: Container[str]) -> bool:
    """Whether a model has the marks of the reference code's models with a head."""
    if released := REFERENCE_NAME.match(Path(name).name):
        return released[1] == "sup"
    return "mlp.dense.weight" in tensors or "ForCL" in str(hf_config.get("architectures"))


def _max_length(folder: Path, config: EncoderConfig) -> int:
    """The length that the model's files state, if any: sentence-transformers writes it here or there."""
    for file, field in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        stated = read_json(folder / file).get(field) if (folder / file).is_file() else None
        if isinstance(stated, (int, float)) and stated >= 3:  # two tokens are special
            return int(min(stated, config.max_length))
    return config.max_length
