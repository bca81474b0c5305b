"""SimCSE, Table 3: the rate of dropout, none, and the same mask for both views, unsupervised, STS-B dev."""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.sweep = sweep_defaults("Dropout rates", "SimCSE, Table 3", ("stsb_dev",), baseline="0.1")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The columns of the table."""
    paper = {0.01: 72.6, 0.05: 81.1, 0.1: 82.5, 0.15: 81.4, 0.2: 80.5, 0.5: 71.0}
    return (
        # Without dropout both views are the same; one policy of masks says so.
        Variant("0.0", {"model.dropout": 0.0, "views.positive": "off"}, {"stsb_dev": 71.1}),
        *(Variant(f"{rate}", {"model.dropout": rate}, {"stsb_dev": score}) for rate, score in paper.items()),
        Variant("fixed 0.1", {"model.dropout": 0.1, "views.positive": "shared"}, {"stsb_dev": 43.6}),
    )
