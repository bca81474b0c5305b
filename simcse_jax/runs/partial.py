"""Which part of a run's encoder trains, and the file with the rest, which a run's folder has once."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from ml_collections import config_dict

from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, write_atomically
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.peft import base_fingerprint, read_adapter, sites
from simcse_jax.huggingface.weight_files import read_safetensors
from simcse_jax.models import partial
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig, Lora, Partial
from simcse_jax.models.head import HEADS
from simcse_jax.models.model_types import WORD_VECTORS

FILE = "frozen.safetensors"  # in a run's folder `model/`
FINGERPRINT = f"model/{FILE}"  # the key of its SHA-256 in `run.json`

Fields: TypeAlias = Mapping[str, Any] | config_dict.ConfigDict


def model_has_lora(model: Fields) -> bool:
    """Whether a run's `config.model` asks for LoRA; runs of earlier versions do not."""
    return bool(model.get("lora", {}).get("rank", 0))


def partial_of(model: Fields, encoder: EncoderConfig) -> Partial | None:
    """The part of an encoder that a run's `config.model` trains; None: all of it, as in runs of earlier versions."""
    freeze = model.get("freeze", {})
    embeddings, layers = bool(freeze.get("embeddings", False)), int(freeze.get("layers", 0))
    has_lora = model_has_lora(model)
    if not (embeddings or layers or has_lora):
        return None
    name = model["init_from"]
    if encoder.model_type == WORD_VECTORS:
        field = f"model.lora.rank={model['lora']['rank']}" if has_lora else "model.freeze"
        raise UserError(f"config.{field}: {name} averages word vectors and has no layers")
    _check_layers(layers, encoder, name)
    if has_lora:
        if layers == encoder.num_layers:
            raise UserError(f"config.model.freeze.layers={layers}: are all that {name} has, so none is left for LoRA")
        return Partial(embeddings, layers, _lora(model["lora"], encoder, name))
    all_frozen = embeddings and layers == encoder.num_layers
    if all_frozen and not HEADS[model["mlp"]].scored and not model.get("convolutions", {}).get("widths"):
        raise UserError(
            f"config.model.freeze.layers={layers}: with model.freeze.embeddings all of {name} is frozen, so there is "
            "nothing to train; freeze fewer layers, or set model.lora.rank"
        )
    return Partial(embeddings, layers)


def _check_layers(count: int, encoder: EncoderConfig, name: str) -> None:
    if count > encoder.num_layers:
        raise UserError(f"config.model.freeze.layers={count}: {name} has {encoder.num_layers} layers")
    groups = encoder.groups
    if set(groups[:count]) & set(groups[count:]):
        whole = [n for n in range(encoder.num_layers + 1) if not set(groups[:n]) & set(groups[n:])]
        raise UserError(
            f"config.model.freeze.layers={count}: layers of {name} share their weights; it must be one of "
            f"{', '.join(map(str, whole))}"
        )


def _lora(fields: Fields, encoder: EncoderConfig, name: str) -> Lora:
    rank = fields["rank"]
    if rank > encoder.hidden_size:
        raise UserError(f"config.model.lora.rank={rank}: is above {encoder.hidden_size}, the hidden size of {name}")
    return Lora(rank, float(fields["alpha"]), sites(encoder, fields["targets"], "config.model.lora.targets"))


def frozen_params(model: Fields, pretrained: Pretrained) -> dict[str, np.ndarray]:
    """The parameters of a pretrained model that a run freezes, by our names; none if it trains all."""
    encoder = dataclasses.replace(pretrained.config, partial=partial_of(model, pretrained.config))
    return {name: np.asarray(value) for name, value in pretrained.params.items() if partial.is_frozen(name, encoder)}


def own_adapter(model: Fields, pretrained: Pretrained) -> dict[str, np.ndarray] | None:
    """LoRA's parameters of the folder `model.lora.init_from`, by our names; None if a run starts with fresh ones."""
    if not model_has_lora(model) or not model["lora"].get("init_from"):
        return None
    encoder = dataclasses.replace(pretrained.config, partial=partial_of(model, pretrained.config))
    return read_adapter(model["lora"]["init_from"], encoder, pretrained)


def write_frozen(frozen: Mapping[str, AnyArray], folder: Folder) -> None:
    """Writes `FILE` into a run's folder `model/`."""
    from safetensors.numpy import save

    write_atomically(folder / FILE, save({name: np.asarray(value) for name, value in frozen.items()}))


def read_frozen(folder: Path, run: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The frozen parameters of a run, from its folder `model/`.

    Args:
      shapes: those of the parameters that must be there; without any, no file is read.
    """
    if not shapes:
        return {}
    path, mend = folder / FILE, "copy it from a backup, or run the training's command again, which writes it"
    if not path.is_file():
        raise UserError(f"{path}: is missing; {mend}")
    found = read_safetensors(path)
    same = {name: value.shape for name, value in found.items()} == {name: each.shape for name, each in shapes.items()}
    if not same or base_fingerprint(found) != run["sha256"].get(FINGERPRINT):
        raise UserError(f"{path}: damaged: not the parameters that the run froze; remove it and {mend}")
    return found
