"""The parameters of a run: those that it trains, and those of its encoder that are frozen.

It trains a sentence encoder or a part of it, a projector, and parameters that only its objectives use. The frozen ones
are in a file of the run's folder, once.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, Key

from simcse_jax.config.sections import Section
from simcse_jax.devices import processes
from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, write_atomically
from simcse_jax.huggingface.load import Pretrained, choose_pooler
from simcse_jax.huggingface.peft import base_fingerprint, read_adapter, sites
from simcse_jax.huggingface.sentence_transformers import describe
from simcse_jax.huggingface.weight_files import read_safetensors
from simcse_jax.models import convolutions, language_model, lora, modules, parameters, partial
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import Convolutions, EncoderConfig, Lora, Partial
from simcse_jax.models.head import HEADS, PREFIX
from simcse_jax.models.model_types import WORD_VECTORS
from simcse_jax.models.parameters import Arrays, Params
from simcse_jax.models.projector import Projector, fresh_projector, read_projector
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.objective import Parameters, StatefulObjective
from simcse_jax.objectives.registry import trained, with_loss
from simcse_jax.objectives.rows import Kept

FROZEN_FILE = "frozen.safetensors"  # in a run's folder `model/`
FINGERPRINT = f"model/{FROZEN_FILE}"  # the key of its SHA-256 in `run.json`
Fields: TypeAlias = Mapping[str, Any]


class TrainState(NamedTuple):
    """What an update changes. `step` counts the updates."""

    step: Int[AnyArray, ""]
    params: Params
    optimizer: optax.OptState
    kept: Kept


Shapes = dict[str, jax.ShapeDtypeStruct]
# Folded into the seed for fresh parameters, so that they share no key with the masks. Objectives have streams too.
HEAD_STREAM, SECOND_HEAD_STREAM, PROJECTOR_STREAM = 0x68656164, 0x68656165, 0x68656169
CONVOLUTION_STREAM, LORA_STREAM, STATE_STREAM = 0x636F6E76, 0x6C6F7261, 0x73746174


def convolutions_of(model: Mapping[str, Any]) -> Convolutions | None:
    """Those that a run's `config.model` asks for; None if it has none, as in runs of earlier versions."""
    fields = model.get("convolutions", {})
    if not fields.get("widths"):
        return None
    return Convolutions(tuple(int(width) for width in fields["widths"]), fields["channels"], fields["activation"])


def with_parts(encoder: EncoderConfig, model: Mapping[str, Any]) -> EncoderConfig:
    """The encoder with what a run's `config.model` adds to it, and with the part of it that trains."""
    encoder = computed_as(model, encoder)
    return dataclasses.replace(encoder, convolutions=convolutions_of(model), partial=partial_of(model, encoder))


def computed_as(model: Mapping[str, Any], encoder: EncoderConfig) -> EncoderConfig:
    """The encoder, computed as a run's `config.model` says; older runs say nothing of kernels."""
    return dataclasses.replace(encoder, attention_kernels=model.get("attention_kernels", False))


def split_shapes(encoder: EncoderConfig, run: Mapping[str, Any]) -> tuple[Shapes, Shapes]:
    """The abstract float32 parameters of a run's checkpoints, by name, and those that are frozen.

    `run`: the run's config, also that of `run.json`; a field that an older run lacks is off.
    """
    encoder = with_parts(encoder, run["model"])
    _, first = build(encoder, with_head=HEADS[run["model"]["mlp"]].trained)
    shapes = dict(first)
    if run["model"].get("dual_encoder", False):
        shapes |= {parameters.SECOND + name: value for name, value in first.items()}
    if projector := read_projector(run.get("projector", {})):
        shapes |= jax.eval_shape(lambda: _fresh_projector(projector, encoder, 0))
    for objective in trained(run["objective"]).values():
        if own := with_loss(objective).parameters:
            shapes |= _shapes(own, encoder) | {own.copy_of_encoder + name: first[name] for name in _copied(own, first)}
    return partial.split(shapes, encoder)


def pretrained_shapes(encoder: EncoderConfig) -> Shapes:
    """The abstract float32 parameters of a pretrained model with its language-model head, by the same names."""
    _, shapes = build(encoder, with_head=False)
    head = {parameters.LANGUAGE_MODEL + name: shape for name, shape in language_model.shapes(encoder).items()}
    return shapes | {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in head.items()}


def initial_params(
    config: Section, model: Pretrained, adapter: Mapping[str, AnyArray] | None = None
) -> dict[str, AnyArray]:
    """All initial parameters of a run, frozen ones included: the loaded weights, and fresh ones that the model lacks.

    The loaded ones are the model's own arrays, on the host as a rule: they belong on no device as a whole.

    A second encoder starts from the same weights, with a fresh head of its own. `adapter` has LoRA's parameters where
    they are not fresh.
    """
    encoder: dict[str, AnyArray] = {name: value for name, value in model.params.items() if name.startswith("encoder.")}
    encoder |= _convolutions(config, model)
    encoder |= {name: value for name, value in model.params.items() if name.startswith(modules.PREFIX)}
    if model.config.modules:
        processes.say(f"{model.name}: its modules {describe(model.config.modules)} are trained further")
    if model_has_lora(config.model):
        encoder |= lora.fresh(with_parts(model.config, config.model), _key(config.seed, LORA_STREAM))
        encoder |= adapter or {}
    params = {**encoder, **_head(config, model, HEAD_STREAM)}
    if config.model.dual_encoder:
        params |= {parameters.SECOND + name: value for name, value in encoder.items()}
        params |= {parameters.SECOND + name: value for name, value in _head(config, model, SECOND_HEAD_STREAM).items()}
    if HEADS[config.model.mlp].trained and choose_pooler(model, config.model.pooler)[1]:
        processes.say(f"{model.name}: its own head is trained further")
    if projector := read_projector(config.get("projector", {})):
        params |= _fresh_projector(projector, model.config, config.seed)
    for name, objective in trained(config.objective).items():
        if own := with_loss(objective).parameters:
            params |= _objective_params(name, own, model, config.seed)
            params |= {own.copy_of_encoder + part: encoder[part] for part in _copied(own, encoder)}
    return params


def initial_kept(config: Section, encoder: EncoderConfig, trained_params: Mapping[str, AnyArray]) -> Kept:
    """What the objectives of a run keep from step to step, as it is before the first one."""
    key = _key(config.seed, STATE_STREAM)
    found = {}
    for name, objective in trained(config.objective).items():
        if isinstance(objective := with_loss(objective), StatefulObjective):
            fields = {field: config.objective[name][field] for field in objective.fields if field != "weight"}
            found[name] = objective.initial_state(encoder, trained_params, key, **fields)
    return found


def _convolutions(config: Section, model: Pretrained) -> Arrays:
    """The model's own convolutions if they have the same sizes, otherwise fresh ones; nothing if it trains none."""
    wanted = convolutions_of(config.model)
    if wanted is None:
        return {}
    own = {name: value for name, value in model.params.items() if name.startswith(convolutions.PREFIX)}
    encoder = dataclasses.replace(model.config, convolutions=wanted)
    fresh = convolutions.fresh(encoder, _key(config.seed, CONVOLUTION_STREAM))
    if {name: value.shape for name, value in own.items()} == {name: value.shape for name, value in fresh.items()}:
        processes.say(f"{model.name}: its own convolutions are trained further")
        return own
    if own:
        processes.say(f"{model.name}: its own convolutions have other sizes; fresh ones are trained")
    return fresh


def _head(config: Section, model: Pretrained, stream: int) -> Arrays:
    """The model's own head or a fresh one; nothing if no head is trained."""
    if not HEADS[config.model.mlp].trained:
        return {}
    if choose_pooler(model, config.model.pooler)[1]:
        return {name: value for name, value in model.params.items() if name.startswith(PREFIX)}
    size = model.config.hidden_size
    kernel = 0.02 * jax.random.normal(_key(config.seed, stream), (size, size), jnp.float32)
    return {f"{PREFIX}kernel": kernel, f"{PREFIX}bias": jnp.zeros(size, jnp.float32)}


def _objective_params(name: str, own: Parameters, model: Pretrained, seed: int) -> Arrays:
    """An objective's own parameters: the model's if it has them, otherwise fresh ones."""
    names = _shapes(own, model.config).keys()
    loaded = {parameters.LANGUAGE_MODEL + part: value for part, value in (model.language_model or {}).items()}
    if names <= loaded.keys():
        return {part: loaded[part] for part in names}
    if own.pretrained:
        processes.say(f"{model.name}: has no {own.pretrained}; objective.{name} starts with a fresh one")
    return own.fresh(model.config, _key(seed, own.stream))


def _fresh_projector(projector: Projector, encoder: EncoderConfig, seed: int) -> Params:
    params = fresh_projector(projector, encoder.sentence_size, _key(seed, PROJECTOR_STREAM))
    return {parameters.PROJECTOR + name: value for name, value in params.items()}


def _copied(own: Parameters, encoder: Iterable[str]) -> list[str]:
    """The encoder's parameters that an objective has a copy of: all without convolutions, LoRA and head, or none."""
    copied = [name for name in encoder if own.copy_of_encoder and name.startswith("encoder.")]
    return [name for name in copied if f".{lora.NAME}." not in name]


def _shapes(own: Parameters, encoder: EncoderConfig) -> Shapes:
    return jax.eval_shape(lambda: own.fresh(encoder, _key(0, own.stream)))


def _key(seed: int, stream: int) -> Key[Array, ""]:
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), stream)


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
        fields, size = model["lora"], encoder.hidden_size
        if fields["rank"] > size:
            raise UserError(f"config.model.lora.rank={fields['rank']}: is above {size}, the hidden size of {name}")
        targets = sites(encoder, fields["targets"], "config.model.lora.targets")
        return Partial(embeddings, layers, Lora(fields["rank"], float(fields["alpha"]), targets))
    all_frozen = embeddings and layers == encoder.num_layers
    others = encoder.modules or model.get("convolutions", {}).get("widths")
    if all_frozen and not HEADS[model["mlp"]].scored and not others:
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
    """Writes `FROZEN_FILE` into a run's folder `model/`."""
    from safetensors.numpy import save

    write_atomically(folder / FROZEN_FILE, save({name: np.asarray(value) for name, value in frozen.items()}))


def read_frozen(folder: Path, run: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The frozen parameters of a run, from its folder `model/`."""
    if not shapes:
        return {}
    path, mend = folder / FROZEN_FILE, "copy it from a backup, or run the training's command again, which writes it"
    if not path.is_file():
        raise UserError(f"{path}: is missing; {mend}")
    found = {name: np.array(value) for name, value in read_safetensors(path).items()}
    same = {name: value.shape for name, value in found.items()} == {name: each.shape for name, each in shapes.items()}
    if not same or base_fingerprint(found) != run["sha256"].get(FINGERPRINT):
        raise UserError(f"{path}: damaged: not the parameters that the run froze; remove it and {mend}")
    return found
