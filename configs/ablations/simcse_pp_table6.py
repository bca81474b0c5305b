"""SimCSE++, Table 6: the cost of SimCSE++, in minutes of one epoch of a million sentences.

The paper does not give its hardware, so its minutes only serve to compare the two rows.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base, with the settings of SimCSE++."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.objective.off_dropout.reading = "released"
    config.eval.every = 125
    config.sweep = sweep_defaults("Running time", "SimCSE++, Table 6", ("training_minutes",), baseline="SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table."""
    plus_plus = {
        "objective.info_nce.weight": 0.0,
        "objective.off_dropout.weight": 1.0,
        "objective.dimension_wise.weight": 0.1,
    }
    return (
        Variant("SimCSE", {}, {"training_minutes": 110.0}),
        Variant("SimCSE++", plus_plus, {"training_minutes": 119.0}),
    )
