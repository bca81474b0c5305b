"""The parameters of a run: those that it trains, and those of its encoder that are frozen.

It trains a sentence encoder or a part of it, a projector, and parameters that only its objectives use. The frozen ones
are in a file of the run's folder, once.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, Key

from simcse_jax.choices import HEADS, Head
from simcse_jax.config.fields import scoring_pooler
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
from simcse_jax.models.head import PREFIX
from simcse_jax.models.model_types import WORD_VECTORS
from simcse_jax.models.parameters import Arrays, Params
from simcse_jax.models.projector import Projector, fresh_projector
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.objective import Parameters, StatefulObjective
from simcse_jax.objectives.registry import load_loss, trained_objectives
from simcse_jax.objectives.rows import Kept

FROZEN_FILE = "frozen.safetensors"  # in a run's folder `model/`
FINGERPRINT = f"model/{FROZEN_FILE}"  # the key of its SHA-256 in `run.json`


class LoraSpec(NamedTuple):
    """The products that train in the place of the encoder; see the fields of `config.model.lora`."""

    rank: int
    alpha: float
    targets: tuple[str, ...]
    init_from: str = ""  # a folder in PEFT's format


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model that a run trains: the parts that it adds to its start model, and which parts train."""

    init_from: str = ""
    num_layers: int = 0
    bidirectional: bool = False
    template: str = ""
    keep_settings: bool = False
    keep_modules: bool = False
    pooler: str = "cls"
    scored_pooler: str = "cls"  # of the trained model
    choosing_pooler: str = "cls"  # of the scores that choose a checkpoint
    head: Head = HEADS["train"]
    attention_kernels: bool = False
    dual_encoder: bool = False
    generator: str = ""  # of replaced tokens
    convolutions: Convolutions | None = None
    lora: LoraSpec | None = None
    frozen_embeddings: bool = False
    frozen_layers: int = 0
    projector: Projector | None = None
    projected: tuple[str, ...] = ()  # the objectives that see projected embeddings
    objectives: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # their fields, by name
    seed: int = 0  # of parameters that the model lacks


def model_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The spec of a run's config, or of that in its `run.json`."""
    model, projector = config["model"], config["projector"]
    convolutions, lora, freeze = model["convolutions"], model["lora"], model["freeze"]
    widths, norms = projector["widths"], (projector[name] for name in Projector._fields[1:])
    return ModelSpec(
        init_from=model["init_from"],
        num_layers=model["num_layers"],
        bidirectional=model["bidirectional"],
        template=model["template"],
        keep_settings=model["keep_settings"],
        keep_modules=model["keep_modules"],
        pooler=model["pooler"],
        scored_pooler=scoring_pooler(config),
        choosing_pooler=config["eval"]["development_pooler"] or scoring_pooler(config),
        head=HEADS[model["mlp"]],
        attention_kernels=model["attention_kernels"],
        dual_encoder=model["dual_encoder"],
        generator=model["generator"],
        convolutions=Convolutions(
            tuple(map(int, convolutions["widths"])), convolutions["channels"], convolutions["activation"]
        )
        if convolutions["widths"]
        else None,
        lora=LoraSpec(lora["rank"], lora["alpha"], tuple(lora["targets"]), lora["init_from"]) if lora["rank"] else None,
        frozen_embeddings=freeze["embeddings"],
        frozen_layers=freeze["layers"],
        projector=Projector(tuple(widths.split(",")), *norms) if widths else None,
        projected=tuple(projector["objectives"]),
        objectives={name: dict(config["objective"][name]) for name in trained_objectives(config["objective"])},
        seed=config["seed"],
    )


class TrainState(NamedTuple):
    """The state that an update changes. `step` counts the updates."""

    step: Int[AnyArray, ""]
    params: Params
    optimizer: optax.OptState
    kept: Kept


Shapes = dict[str, jax.ShapeDtypeStruct]
# Folded into the seed for fresh parameters, so that they share no key with the masks. Objectives have streams too.
HEAD_STREAM, SECOND_HEAD_STREAM, PROJECTOR_STREAM = 0x68656164, 0x68656165, 0x68656169
CONVOLUTION_STREAM, LORA_STREAM, STATE_STREAM = 0x636F6E76, 0x6C6F7261, 0x73746174


def add_parts(encoder: EncoderConfig, spec: ModelSpec) -> EncoderConfig:
    """The encoder with what a run adds to it, and with the part of it that trains."""
    encoder = dataclasses.replace(encoder, attention_kernels=spec.attention_kernels, convolutions=spec.convolutions)
    return dataclasses.replace(encoder, partial=make_partial(spec, encoder))


def split_shapes(encoder: EncoderConfig, spec: ModelSpec) -> tuple[Shapes, Shapes]:
    """The abstract float32 parameters of a run's checkpoints, by name, and those that are frozen."""
    encoder = add_parts(encoder, spec)
    _, first = build(encoder, with_head=spec.head.trained)
    shapes = dict(first)
    if spec.dual_encoder:
        shapes |= {parameters.SECOND + name: value for name, value in first.items()}
    if projector := spec.projector:
        shapes |= jax.eval_shape(lambda: _fresh_projector(projector, encoder, 0))
    for objective in trained_objectives(spec.objectives).values():
        if declared := load_loss(objective).parameters:
            shapes |= _shapes(declared, encoder) | {
                declared.copy_of_encoder + name: first[name] for name in _copied_names(declared, first)
            }
    return partial.split(shapes, encoder)


def pretrained_shapes(encoder: EncoderConfig) -> Shapes:
    """The abstract float32 parameters of a pretrained model with its language-model head, by the same names."""
    _, shapes = build(encoder, with_head=False)
    head = {parameters.LANGUAGE_MODEL + name: shape for name, shape in language_model.shapes(encoder).items()}
    return shapes | {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in head.items()}


def initial_params(
    spec: ModelSpec, model: Pretrained, adapter: Mapping[str, AnyArray] | None = None
) -> dict[str, AnyArray]:
    """All initial parameters of a run, frozen ones included: the loaded weights, and fresh ones that the model lacks.

    The loaded ones are the model's own arrays, on the host as a rule: they belong on no device as a whole.

    A second encoder starts from the same weights, with a fresh head of its own. `adapter` has LoRA's parameters where
    they are not fresh.
    """
    encoder: dict[str, AnyArray] = {name: value for name, value in model.params.items() if name.startswith("encoder.")}
    encoder |= _convolutions(spec, model)
    encoder |= {name: value for name, value in model.params.items() if name.startswith(modules.PREFIX)}
    if model.config.modules:
        processes.say(f"{model.name}: its modules {describe(model.config.modules)} are trained further")
    if spec.lora:
        encoder |= lora.fresh(add_parts(model.config, spec), _key(spec.seed, LORA_STREAM))
        encoder |= adapter or {}
    params = {**encoder, **_head(spec, model, HEAD_STREAM)}
    if spec.dual_encoder:
        params |= {parameters.SECOND + name: value for name, value in encoder.items()}
        params |= {parameters.SECOND + name: value for name, value in _head(spec, model, SECOND_HEAD_STREAM).items()}
    if spec.head.trained and choose_pooler(model, spec.pooler)[1]:
        processes.say(f"{model.name}: its own head is trained further")
    if spec.projector:
        params |= _fresh_projector(spec.projector, model.config, spec.seed)
    for name, objective in trained_objectives(spec.objectives).items():
        if declared := load_loss(objective).parameters:
            params |= _objective_params(name, declared, model, spec.seed)
            params |= {declared.copy_of_encoder + part: encoder[part] for part in _copied_names(declared, encoder)}
    return params


def initial_kept(spec: ModelSpec, encoder: EncoderConfig, trained_params: Mapping[str, AnyArray]) -> Kept:
    """The initial state of a run's objectives (`StatefulObjective`)."""
    key = _key(spec.seed, STATE_STREAM)
    kept = {}
    for name, objective in trained_objectives(spec.objectives).items():
        if isinstance(objective := load_loss(objective), StatefulObjective):
            fields = {field: spec.objectives[name][field] for field in objective.fields if field != "weight"}
            kept[name] = objective.initial_state(encoder, trained_params, key, **fields)
    return kept


def _convolutions(spec: ModelSpec, model: Pretrained) -> Arrays:
    """The model's own convolutions if they have the same sizes, otherwise fresh ones; nothing if it trains none."""
    if spec.convolutions is None:
        return {}
    from_model = {name: value for name, value in model.params.items() if name.startswith(convolutions.PREFIX)}
    encoder = dataclasses.replace(model.config, convolutions=spec.convolutions)
    fresh = convolutions.fresh(encoder, _key(spec.seed, CONVOLUTION_STREAM))
    if {name: value.shape for name, value in from_model.items()} == {
        name: value.shape for name, value in fresh.items()
    }:
        processes.say(f"{model.name}: its own convolutions are trained further")
        return from_model
    if from_model:
        processes.say(f"{model.name}: its own convolutions have other sizes; fresh ones are trained")
    return fresh


def _head(spec: ModelSpec, model: Pretrained, stream: int) -> Arrays:
    """The model's own head or a fresh one; nothing if no head is trained."""
    if not spec.head.trained:
        return {}
    if choose_pooler(model, spec.pooler)[1]:
        return {name: value for name, value in model.params.items() if name.startswith(PREFIX)}
    size = model.config.hidden_size
    kernel = 0.02 * jax.random.normal(_key(spec.seed, stream), (size, size), jnp.float32)
    return {f"{PREFIX}kernel": kernel, f"{PREFIX}bias": jnp.zeros(size, jnp.float32)}


def _objective_params(name: str, declared: Parameters, model: Pretrained, seed: int) -> Arrays:
    """An objective's own parameters: the model's if it has them, otherwise fresh ones."""
    names = _shapes(declared, model.config).keys()
    loaded = {parameters.LANGUAGE_MODEL + part: value for part, value in (model.language_model or {}).items()}
    if names <= loaded.keys():
        return {part: loaded[part] for part in names}
    if declared.pretrained:
        processes.say(f"{model.name}: has no {declared.pretrained}; objective.{name} starts with a fresh one")
    return declared.fresh(model.config, _key(seed, declared.stream))


def _fresh_projector(projector: Projector, encoder: EncoderConfig, seed: int) -> Params:
    params = fresh_projector(projector, encoder.sentence_size, _key(seed, PROJECTOR_STREAM))
    return {parameters.PROJECTOR + name: value for name, value in params.items()}


def _copied_names(declared: Parameters, encoder: Iterable[str]) -> list[str]:
    """The encoder's parameters that an objective has a copy of: all without convolutions, LoRA and head, or none."""
    copied = [name for name in encoder if declared.copy_of_encoder and name.startswith("encoder.")]
    return [name for name in copied if f".{lora.NAME}." not in name]


def _shapes(declared: Parameters, encoder: EncoderConfig) -> Shapes:
    return jax.eval_shape(lambda: declared.fresh(encoder, _key(0, declared.stream)))


def _key(seed: int, stream: int) -> Key[Array, ""]:
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), stream)


def make_partial(spec: ModelSpec, encoder: EncoderConfig) -> Partial | None:
    """The part of an encoder that a run trains; None: all of it.

    Raises:
      UserError: naming the field that does not fit the encoder, or when nothing would train.
    """
    embeddings, layers, products, name = spec.frozen_embeddings, spec.frozen_layers, spec.lora, spec.init_from
    if not (embeddings or layers or products):
        return None
    if encoder.model_type == WORD_VECTORS:
        raise UserError(
            f"config.model.{'lora' if products else 'freeze'}: {name} averages word vectors, without layers"
        )
    groups = encoder.groups
    whole = [n for n in range(encoder.num_layers + 1) if not set(groups[:n]) & set(groups[n:])]  # share no weights
    if layers not in whole:
        raise UserError(f"config.model.freeze.layers={layers}: must be one of {', '.join(map(str, whole))} for {name}")
    others = products is None and (not embeddings or spec.head.scored or encoder.modules or spec.convolutions)
    if layers == encoder.num_layers and not others:
        raise UserError(f"config.model.freeze.layers={layers}: leaves nothing to train of {name}; freeze fewer layers")
    if products is None:
        return Partial(embeddings, layers)
    targets = sites(encoder, products.targets, "config.model.lora.targets")
    return Partial(embeddings, layers, Lora(products.rank, float(products.alpha), targets))


def frozen_params(spec: ModelSpec, pretrained: Pretrained) -> dict[str, np.ndarray]:
    """The parameters of a pretrained model that a run freezes, by our names; none if it trains all."""
    encoder = dataclasses.replace(pretrained.config, partial=make_partial(spec, pretrained.config))
    return {name: np.asarray(value) for name, value in pretrained.params.items() if partial.is_frozen(name, encoder)}


def starting_adapter(spec: ModelSpec, pretrained: Pretrained) -> dict[str, np.ndarray] | None:
    """LoRA's parameters of the folder `model.lora.init_from`, by our names; None if a run starts with fresh ones."""
    if not (spec.lora and spec.lora.init_from):
        return None
    encoder = dataclasses.replace(pretrained.config, partial=make_partial(spec, pretrained.config))
    return read_adapter(spec.lora.init_from, encoder, pretrained)


def write_frozen(frozen: Mapping[str, AnyArray], folder: Folder) -> None:
    """Writes `FROZEN_FILE` into a run's folder `model/`."""
    from safetensors.numpy import save

    write_atomically(folder / FROZEN_FILE, save({name: np.asarray(value) for name, value in frozen.items()}))


def read_frozen(folder: Path, run: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The frozen parameters of a run, from its folder `model/`."""
    if not shapes:
        return {}
    path = folder / FROZEN_FILE
    frozen = {name: np.array(value) for name, value in read_safetensors(path).items()}
    if frozen.keys() != shapes.keys() or base_fingerprint(frozen) != run["sha256"].get(FINGERPRINT):
        raise UserError(
            f"{path}: damaged: not what the run froze; remove it, and the training's command writes it again"
        )
    return frozen
