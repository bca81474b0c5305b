"""SimCSE, Tables 1 and 3: four of their rows, and SimCSE++, at the papers' number of steps.

One epoch of a million sentences, 15,625 steps of 64: dropout alone as the difference of two views, none of it, one mask
for both, a word deleted instead, and SimCSE++. It is meant for a GPU and the small language model of
`configs/language_model.py`. The model, the data and what is scored are given on the command line, as in
`benchmarks/gpu.sh`; with fewer sentences the same steps are more epochs. The paper's values are BERT-base's.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.configs import simcse_plus_plus
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

STEPS = 15_625


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.train.max_steps = STEPS
    config.eval.every = STEPS // 25
    columns = ("stsb_dev", *TASKS, "sts_avg", "alignment", "uniformity", "best_step")
    config.sweep = sweep_defaults("One epoch of a million sentences", "SimCSE, Tables 1 and 3", columns, "SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows."""
    base = get_config()
    plus_plus = as_recipe(simcse_plus_plus.get_config(), base)
    for field in ("train.max_steps", "eval.every"):
        plus_plus.pop(field, None)
    return (
        Variant("SimCSE", {}, {"stsb_dev": 82.5}),
        Variant("no dropout", {"model.dropout": 0.0, "views.positive": "off"}, {"stsb_dev": 71.1}),
        Variant("fixed 0.1", {"model.dropout": 0.1, "views.positive": "shared"}, {"stsb_dev": 43.6}),
        Variant("delete one word", {"data.augment.name": "delete_one"}, {"stsb_dev": 75.9}),
        Variant("SimCSE++", plus_plus),
    )
