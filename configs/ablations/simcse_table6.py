"""SimCSE, Table 6: poolers, STS-B dev.

`ablations/simcse_table6` is unsupervised SimCSE, `ablations/simcse_table6:sup` supervised.

The file: `python -m simcse_jax.build_data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults

BASELINES = {"unsup": "cls with head in training", "sup": "cls with head"}


def get_config(setting: str = "unsup") -> config_dict.ConfigDict:
    """SimCSE of BERT-base."""
    baseline = choose_variant(setting, BASELINES)
    config = default_config()
    if setting == "sup":  # as configs/sup_bert.py
        config.data.train = "data/nli_for_simcse.csv"
        config.train.batch_size = 512
        config.train.learning_rate = 5e-5
        config.train.epochs = 3
    title = {"unsup": "Poolers, unsupervised", "sup": "Poolers, supervised"}[setting]
    config.sweep = sweep_defaults(title, "SimCSE, Table 6", ("stsb_dev",), baseline)
    return config


def get_variants(setting: str = "unsup") -> tuple[Variant, ...]:
    """The rows of the table."""
    choose_variant(setting, BASELINES)
    rows = {
        "cls with head": ("cls", "always", {"unsup": 81.7, "sup": 86.2}),
        "cls with head in training": ("cls", "train", {"unsup": 82.5, "sup": 85.8}),
        "cls without head": ("cls", "none", {"unsup": 80.9, "sup": 86.2}),
        "avg_first_last": ("avg_first_last", "none", {"unsup": 81.2, "sup": 86.1}),
    }
    return tuple(
        Variant(name, {"model.pooler": pooler, "model.mlp": mlp}, {"stsb_dev": paper[setting]})
        for name, (pooler, mlp, paper) in rows.items()
    )
