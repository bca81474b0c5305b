"""SimCSE, Appendix A: the grid of batch sizes and learning rates, STS-B dev.

`ablations/simcse_grid` is unsupervised SimCSE, `ablations/simcse_grid:sup` supervised. The paper gives no scores; the
baseline is its choice (Table A.1).

The file: `simcse-jax build-data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

BASELINES = {"unsup": "batch 64 at 3e-05", "sup": "batch 512 at 5e-05"}


def get_config(setting: str = "unsup") -> config_dict.ConfigDict:
    """SimCSE of BERT-base."""
    baseline = choose_variant(setting, BASELINES)
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    if setting == "sup":  # as configs/sup_bert.py
        config.model.mlp = "always"
        config.data.train = "data/nli_for_simcse.csv"
        config.train.epochs = 3
    title = {"unsup": "Batch and learning rate, unsupervised", "sup": "Batch and learning rate, supervised"}[setting]
    config.sweep = sweep_defaults(title, "SimCSE, Appendix A", ("stsb_dev",), baseline)
    return config


def get_variants(setting: str = "unsup") -> tuple[Variant, ...]:
    """The grid, the same for both."""
    choose_variant(setting, BASELINES)
    return tuple(
        Variant(f"batch {size} at {rate:.0e}", {"train.batch_size": size, "train.learning_rate": rate})
        for size in (64, 128, 256, 512)
        for rate in (1e-5, 3e-5, 5e-5)
    )
