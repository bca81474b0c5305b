"""From a config to the recipe that a step is compiled for, and to the numbers that it takes."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from simcse_jax.config.fields import fields_of, flatten, numbers_of_step
from simcse_jax.config.matryoshka_fields import sizes_of, weights_of
from simcse_jax.config.sections import Section
from simcse_jax.data.documents import SPANS
from simcse_jax.field import read_milestones
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import HEADS
from simcse_jax.models.masking import Masking
from simcse_jax.models.projector import read_projector
from simcse_jax.models.sentence_encoder import Graph, build
from simcse_jax.objectives.registry import needing, trained
from simcse_jax.objectives.tokens import GENERATOR
from simcse_jax.objectives.total import Term
from simcse_jax.objectives.views import Plan
from simcse_jax.runs.state import computed_as
from simcse_jax.training.learning_rate import warmup_steps
from simcse_jax.training.loss import Recipe
from simcse_jax.training.optimizer import Optimization
from simcse_jax.training.rows import Settings

Networks = tuple[tuple[str, Graph], ...]  # see `Recipe.networks`

# Numbers of the step whose last part would not say what they are.
RENAMED = {"model.lora.dropout": "lora_dropout", "matryoshka.weights": "size_weights"}


def make_settings(config: Section, total_steps: int) -> Settings:
    """The scalars that a compiled step takes. Runs that differ only in these share one compilation.

    They are `fields.numbers_of_step()`, by the last part of their names, and `total_steps`. Those of objectives that
    have a weight are grouped by objective. `warmup` is a number of steps, and `milestones` (M, 2) steps and factors.
    `attention_dropout` is among them only if attention has a rate of its own that is not 0 (see `Recipe`),
    `lora_dropout` only if LoRA has one, and `size_weights` (S,) only with `matryoshka.dimensions`.
    """
    settings: Settings = {
        "total_steps": jnp.float32(total_steps),
        "objective": {name: {} for name in trained(config.objective)},
    }
    for name in numbers_of_step(fields_of(config)):
        section, _, last = name.rpartition(".")
        objective = section.removeprefix("objective.") if section.startswith("objective.") else None
        numbers = settings if objective is None else settings["objective"].get(objective)
        last = RENAMED.get(name, last)
        if numbers is not None and not _is_off(name, config):
            numbers[last] = (jnp.uint32 if name == "seed" else jnp.float32)(_in_step(name, config, total_steps))
    return settings


def _is_off(name: str, config: Section) -> bool:
    """Whether the step does not take a number, since there is nothing that it would be for."""
    model = config.model
    off = {"model.attention_dropout": model.attention_dropout <= 0}
    off |= {"model.lora.dropout": not (model.lora.rank and model.lora.dropout)}
    off |= {"matryoshka.weights": not config.matryoshka.dimensions}
    return off.get(name, False)


def _in_step(name: str, config: Section, total_steps: int) -> Any:
    """A field's value as the step takes it."""
    if name == "train.warmup":
        return warmup_steps(config.train.schedule, config.train.warmup, total_steps)
    if name == "train.milestones":
        return np.reshape(read_milestones(config.train.milestones), (-1, 2))
    if name == "matryoshka.weights":
        return np.array(weights_of(config))
    return flatten(config)[name]


def make_recipe(
    config: Section,
    num_columns: int,
    masking: Masking | None = None,
    networks: Networks = (),
    lengths: Sequence[int] = (),
) -> Recipe:
    """The recipe that the step is compiled for. A single column of data is encoded twice, several columns once each.

    `lengths` are the places for a sentence of each column; (): all have the same.
    """
    fields, projector, views = config.objective, read_projector(config.projector), config.views
    plan = Plan(
        num_columns,
        views.positive,
        views.negative if needing(fields, "separate_negatives") else "off",
        samples=views.samples,
        two_towers=config.model.dual_encoder,
        anchor_change=views.anchor_change,
        positive_change=views.positive_change,
        positive_rate=views.positive_dropout >= 0,
        positives=config.data.spans.positives if config.data.positives == SPANS else 1,
        lengths=tuple(lengths),
    )
    return Recipe(
        pooler=config.model.pooler,
        use_head=HEADS[config.model.mlp].trained,
        plan=plan,
        objectives=tuple(
            Term(
                objective,
                tuple(
                    (field, config.objective[name][field]) for field, one in objective.fields.items() if not one.of_step
                ),
                projector is not None and name in config.projector.objectives,
            )
            for name, objective in trained(fields).items()
        ),
        drops_attention=config.model.attention_dropout != 0,
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        round_products=config.train.round_products,
        masking=masking if networks or needing(config.objective, "masks_tokens") else None,
        optimization=Optimization(
            config.train.optimizer, config.train.bias_correction, config.train.schedule, config.train.mu_dtype
        ),
        projector=projector,
        networks=networks,
        sizes=sizes_of(config),
    )


def make_networks(config: Section, encoder: EncoderConfig, generator: EncoderConfig) -> Networks:
    """The networks of an objective that replaces tokens: a generator, and a discriminator that is like the encoder.

    It has no convolutions: it decides for each token from the encoder's own states.
    """
    networks = {GENERATOR: generator, "discriminator": dataclasses.replace(encoder, convolutions=None)}
    dtype = jnp.dtype(config.train.dtype)
    return tuple((name, build(computed_as(config.model, each), False, dtype)[0]) for name, each in networks.items())
