"""Contrastive tension: which of the things that set it apart from SimCSE is worth what.

Besides its loss between two encoders, CT differs in what it trains (the mean of the tokens), its optimizer (RMSprop),
gradients that are not clipped, no dropout, its schedule, 75 tokens where a quarter of the sentences are cut at 32, and
batches of 16. SimCSE with each of these, with all of them, CT, and CT with SimCSE's in place of each. One epoch of
9,600 sentences as in `ablations/systems`; the rate is 1e-4 for all, the best of both there. The model, the data and
what is scored are given on the command line, as in `benchmarks/tables.sh`.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.config.fields import flatten
from simcse_jax.configs import ct
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

GIVEN = ("train.learning_rate", "train.epochs", "train.max_steps", "model.init_from", "data.train")
SMALL, SMALL_STEPS = {"train.batch_size": 16, "eval.every": 200}, {"train.milestones": "60:0.8,120:0.6,180:0.4,240:0.2"}
PARTS = {  # of CT, as SimCSE takes them; milestones at a tenth to four tenths of the steps
    "mean of the tokens": {"model.pooler": "avg", "model.mlp": "none"},
    "RMSprop": {"train.optimizer": "rmsprop", "train.epsilon": 1e-7},
    "no clipping": {"train.max_grad_norm": 0.0},
    "no dropout": {"model.dropout": 0.0, "views.positive": "off"},
    "its schedule": {"train.schedule": "steps", "train.milestones": "15:0.8,30:0.6,45:0.4,60:0.2"},
    "75 tokens": {"data.max_length": 75},
    "batches of 16": SMALL,
    "two encoders": {"model.dual_encoder": True},
}
EACH_WAY = ("RMSprop", "no clipping", "no dropout", "its schedule", "75 tokens")  # the others belong to the loss


def get_config() -> config_dict.ConfigDict:
    """SimCSE, one epoch."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.train.learning_rate = 1e-4
    config.eval.every = 50
    columns = ("stsb_dev", *TASKS, "sts_avg", "best_step", "steps")
    config.sweep = sweep_defaults("What sets CT apart from SimCSE", "Contrastive tension", columns, "SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """SimCSE with parts of CT, CT, and CT with parts of SimCSE."""
    base = get_config()
    usual = flatten(base)
    system = {name: value for name, value in as_recipe(ct.get_config(), base).items() if name not in GIVEN}
    system |= SMALL | SMALL_STEPS
    every = {name: value for part in PARTS.values() for name, value in part.items()} | SMALL_STEPS
    without = {part: {name: usual[name] for name in PARTS[part]} for part in EACH_WAY}
    return (
        Variant("SimCSE", {}),
        *(Variant(f"SimCSE + {part}", fields) for part, fields in PARTS.items()),
        Variant("SimCSE + all of these", every),
        Variant("CT", system),
        *(Variant(f"CT - {part}", system | fields, baseline="CT") for part, fields in without.items()),
    )
