"""From a config to the recipe that a step is compiled for, and to the numbers that it takes."""

import jax.numpy as jnp
from ml_collections import config_dict

from simcse_jax.config.fields import flatten, is_number_of_step, numbers_of_step
from simcse_jax.models.head import HEADS
from simcse_jax.objectives.registry import Term, needs
from simcse_jax.training.loss import LanguageModel, Recipe, Settings
from simcse_jax.training.views import plan


def make_settings(config: config_dict.ConfigDict, total_steps: int) -> Settings:
    """The scalars that a compiled step takes. Runs that differ only in these share one compilation.

    They are `fields.numbers_of_step()`, by the last part of their names, and `total_steps`. Those of objectives that
    have a weight are grouped by objective.
    """
    settings: Settings = {"total_steps": jnp.float32(total_steps), "objective": {name: {} for name in terms_of(config)}}
    fields = flatten(config)
    for name in numbers_of_step():
        section, _, last = name.rpartition(".")
        objective = section.removeprefix("objective.") if section.startswith("objective.") else None
        numbers = settings if objective is None else settings["objective"].get(objective)
        if numbers is not None:
            numbers[last] = (jnp.uint32 if name == "seed" else jnp.float32)(fields[name])
    return settings


def terms_of(config: config_dict.ConfigDict) -> dict[str, config_dict.ConfigDict]:
    """The objectives that have a weight, by name."""
    return {name: term for name, term in config.objective.items() if term.weight > 0}


def make_recipe(
    config: config_dict.ConfigDict, num_columns: int, language_model: LanguageModel | None = None
) -> Recipe:
    """The recipe that the step is compiled for. A single column of data is encoded twice, several columns once each."""
    terms = terms_of(config)
    views, positive, negative = plan(
        num_columns,
        config.views.positive,
        config.views.negative if needs(config.objective).negative_views else None,
        samples=config.views.samples,
        two_towers=config.model.dual_encoder,
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
            )
            for name, term in terms.items()
        ),
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        local_features=needs(config.objective).local_features,
        language_model=language_model if needs(config.objective).masked_tokens else None,
    )
