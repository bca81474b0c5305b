"""From a config to what a step is compiled for, to the numbers it takes, and to the parameters it starts from."""

import functools

import jax
import jax.numpy as jnp
from ml_collections import config_dict

from simcse_jax.config.fields import default_config
from simcse_jax.models.head import HEADS
from simcse_jax.objectives.registry import Term, needs
from simcse_jax.training.loss import LanguageModel, Recipe, Settings
from simcse_jax.training.views import plan


def make_settings(config: config_dict.ConfigDict, total_steps: int) -> Settings:
    """The scalars that a compiled step takes: runs that differ only here share one compilation."""
    terms = {name: term for name, term in config.objective.items() if term.weight > 0}
    settings = {
        "learning_rate": config.train.learning_rate,
        "weight_decay": config.train.weight_decay,
        "max_grad_norm": config.train.max_grad_norm,
        "total_steps": float(total_steps),
        "dropout": config.model.dropout,
        "noise": config.views.noise,
        "objective": {
            name: {field: term[field] for field in term if is_number(name, field)} for name, term in terms.items()
        },
    }
    settings = jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), settings)
    return settings | {"seed": jnp.asarray(config.seed, jnp.uint32)}


@functools.cache
def is_number(objective: str, field: str) -> bool:
    """Whether a field of an objective is one of the numbers that a compiled step takes."""
    return isinstance(default_config().objective[objective][field], float)


def make_recipe(
    config: config_dict.ConfigDict, num_columns: int, language_model: LanguageModel | None = None
) -> Recipe:
    """What the step is compiled for. One column of data is encoded twice, several once each."""
    terms = {name: term for name, term in config.objective.items() if term.weight > 0}
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
            Term(name, tuple((field, term[field]) for field in term if not is_number(name, field)))
            for name, term in terms.items()
        ),
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        language_model=language_model if needs(config.objective).masked_tokens else None,
    )
