"""From a config to the recipe that a step is compiled for, and to the numbers that it takes."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from simcse_jax.config.fields import flatten, is_number_of_step, numbers_of_step
from simcse_jax.config.matryoshka_fields import sizes_of, weights_of
from simcse_jax.data.spans import SPANS
from simcse_jax.field import read_milestones
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import HEADS
from simcse_jax.models.projector import read_projector
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.registry import Term, needs
from simcse_jax.runs.state import computed_as
from simcse_jax.training.learning_rate import warmup_steps
from simcse_jax.training.loss import Recipe
from simcse_jax.training.optimizer import Optimization
from simcse_jax.training.rows import Settings
from simcse_jax.training.token_losses import LanguageModel, Replacement
from simcse_jax.training.views import Input, plan

# Numbers of the step whose last part would not say what they are.
RENAMED = {"model.lora.dropout": "lora_dropout", "matryoshka.weights": "size_weights"}


def make_settings(config: config_dict.ConfigDict, total_steps: int) -> Settings:
    """The scalars that a compiled step takes. Runs that differ only in these share one compilation.

    They are `fields.numbers_of_step()`, by the last part of their names, and `total_steps`. Those of objectives that
    have a weight are grouped by objective. `warmup` is a number of steps, and `milestones` (M, 2) steps and factors.
    `attention_dropout` is among them only if attention has a rate of its own that is not 0 (see `Recipe`),
    `lora_dropout` only if LoRA has one, and `size_weights` (S,) only with `matryoshka.dimensions`.
    """
    settings: Settings = {"total_steps": jnp.float32(total_steps), "objective": {name: {} for name in terms_of(config)}}
    for name in numbers_of_step():
        section, _, last = name.rpartition(".")
        objective = section.removeprefix("objective.") if section.startswith("objective.") else None
        numbers = settings if objective is None else settings["objective"].get(objective)
        last = RENAMED.get(name, last)
        if numbers is not None and not _is_off(name, config):
            numbers[last] = (jnp.uint32 if name == "seed" else jnp.float32)(_in_step(name, config, total_steps))
    return settings


def _is_off(name: str, config: config_dict.ConfigDict) -> bool:
    """Whether the step does not take a number, since there is nothing that it would be for."""
    model = config.model
    off = {"model.attention_dropout": model.attention_dropout <= 0}
    off |= {"model.lora.dropout": not (model.lora.rank and model.lora.dropout)}
    off |= {"matryoshka.weights": not config.matryoshka.dimensions}
    return off.get(name, False)


def _in_step(name: str, config: config_dict.ConfigDict, total_steps: int) -> Any:
    """A field's value as the step takes it."""
    if name == "train.warmup":
        return warmup_steps(config.train.schedule, config.train.warmup, total_steps)
    if name == "train.milestones":
        return np.reshape(read_milestones(config.train.milestones), (-1, 2))
    if name == "matryoshka.weights":
        return np.array(weights_of(config))
    return flatten(config)[name]


def terms_of(config: config_dict.ConfigDict) -> dict[str, config_dict.ConfigDict]:
    """The objectives that have a weight, by name."""
    return {name: term for name, term in config.objective.items() if term.weight > 0}


def make_recipe(
    config: config_dict.ConfigDict,
    num_columns: int,
    language_model: LanguageModel | None = None,
    replacement: Replacement | None = None,
    lengths: Sequence[int] = (),
) -> Recipe:
    """The recipe that the step is compiled for. A single column of data is encoded twice, several columns once each.

    `lengths` are the places for a sentence of each column; (): all have the same.
    """
    terms, projector = terms_of(config), read_projector(config.projector)
    views, positive, negative = plan(
        num_columns,
        config.views.positive,
        config.views.negative if needs(config.objective).negative_views else None,
        samples=config.views.samples,
        two_towers=config.model.dual_encoder,
        positives=config.data.spans.positives if config.data.positives == SPANS else 1,
        inputs=Input(
            config.views.anchor_change, config.views.positive_change, positive_rate=config.views.positive_dropout >= 0
        ),
        lengths=lengths,
    )
    return Recipe(
        pooler=config.model.pooler,
        use_head=HEADS[config.model.mlp].trained,
        views=views,
        positive=positive,
        negative=negative,
        objectives=tuple(
            Term(
                name,
                tuple((field, term[field]) for field in term if not is_number_of_step(f"objective.{name}.{field}")),
                projector is not None and name in config.projector.objectives,
            )
            for name, term in terms.items()
        ),
        drops_attention=config.model.attention_dropout != 0,
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        round_products=config.train.round_products,
        local_features=needs(config.objective).local_features,
        language_model=language_model if needs(config.objective).masked_tokens else None,
        optimization=Optimization(
            config.train.optimizer, config.train.bias_correction, config.train.schedule, config.train.mu_dtype
        ),
        projector=projector,
        replacement=replacement,
        sizes=sizes_of(config),
    )


def make_replacement(
    config: config_dict.ConfigDict, encoder: EncoderConfig, generator: EncoderConfig, masking: LanguageModel
) -> Replacement:
    """The networks of objective.replaced_token_detection: a generator, and a discriminator that is like the encoder.

    It has no convolutions: it decides for each token from the encoder's own states.
    """
    discriminator = dataclasses.replace(encoder, convolutions=None)
    first, second = (computed_as(config.model, network) for network in (generator, discriminator))
    dtype = jnp.dtype(config.train.dtype)
    return Replacement(build(first, False, dtype)[0], build(second, False, dtype)[0], masking)
