"""From a config to what a step is compiled for, to the numbers it takes, and to the parameters it starts from."""

import functools

import jax
import jax.numpy as jnp
from ml_collections import config_dict

from simcse_jax import parallel
from simcse_jax import step as step_lib
from simcse_jax.config import default_config
from simcse_jax.loading import choose_pooler
from simcse_jax.models import parameters
from simcse_jax.models.language_model import fresh_head
from simcse_jax.models.parameters import Params
from simcse_jax.models.pretrained import Pretrained
from simcse_jax.objectives.total import Objective
from simcse_jax.views import plan

# Folded into the seed for fresh weights, so that they share no key with the masks.
HEAD_STREAM, SECOND_HEAD_STREAM, LANGUAGE_MODEL_STREAM, CLASSIFIER_STREAM = range(0x68656164, 0x68656168)


def make_settings(config: config_dict.ConfigDict, total_steps: int) -> step_lib.Settings:
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
    config: config_dict.ConfigDict, num_columns: int, language_model: step_lib.LanguageModel | None = None
) -> step_lib.Recipe:
    """What the step is compiled for. One column of data is encoded twice, several once each."""
    terms = {name: term for name, term in config.objective.items() if term.weight > 0}
    views, positive, negative = plan(
        num_columns,
        config.views.positive,
        config.views.negative if "off_dropout" in terms else None,
        samples=config.views.samples,
        two_towers=config.model.dual_encoder,
    )
    return step_lib.Recipe(
        pooler=config.model.pooler,
        use_head=config.model.mlp != "none",
        views=views,
        positive=positive,
        negative=negative,
        objectives=tuple(
            Objective(name, tuple((field, term[field]) for field in term if not is_number(name, field)))
            for name, term in terms.items()
        ),
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        language_model=language_model if "mlm" in terms else None,
    )


def initial_params(config: config_dict.ConfigDict, model: Pretrained) -> Params:
    """The loaded weights, and all else that is trained: fresh where the model has none of its own.

    A second encoder starts from the same weights, with a fresh head of its own.
    """
    params = {name: jnp.asarray(value) for name, value in model.params.items() if not name.startswith("head.")}
    size = model.config.hidden_size

    def fresh(stream: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(config.seed, impl="threefry2x32"), stream)

    def head(stream: int) -> Params:
        if config.model.mlp == "none":
            return {}
        if "head.kernel" in model.params and choose_pooler(model, config.model.pooler)[1]:
            return {name: jnp.asarray(model.params[name]) for name in ("head.kernel", "head.bias")}
        kernel = 0.02 * jax.random.normal(fresh(stream), (size, size), jnp.float32)
        return {"head.kernel": kernel, "head.bias": jnp.zeros(size, jnp.float32)}

    if config.model.mlp != "none" and "head.kernel" in model.params and choose_pooler(model, config.model.pooler)[1]:
        parallel.say(f"{model.name}: its own head is trained further")
    first = params | head(HEAD_STREAM)
    everything = dict(first)
    if config.model.dual_encoder:
        second = params | head(SECOND_HEAD_STREAM)
        everything |= {parameters.SECOND + name: jnp.array(value) for name, value in second.items()}
    if config.objective.mlm.weight:
        if model.language_model is None:
            parallel.say(f"{model.name}: has no language-model head; objective.mlm starts with a fresh one")
        found = model.language_model or fresh_head(model.config, fresh(LANGUAGE_MODEL_STREAM))
        everything |= {parameters.LANGUAGE_MODEL + name: jnp.asarray(value) for name, value in found.items()}
    if config.objective.softmax_nli.weight:
        everything[parameters.CLASSIFIER] = 0.02 * jax.random.normal(fresh(CLASSIFIER_STREAM), (3 * size, 3))
    return everything
