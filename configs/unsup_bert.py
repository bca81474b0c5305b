"""Unsupervised SimCSE from BERT (SimCSE, Table A.1): a million Wikipedia sentences, one epoch.

`unsup_bert` is BERT-base, `unsup_bert:large` BERT-large.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(size: str = "base") -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    sizes = {"base": ("bert-base-uncased", 64, 3e-5), "large": ("bert-large-uncased", 64, 1e-5)}
    config.model.init_from, config.train.batch_size, config.train.learning_rate = choose_variant(size, sizes)
    return config
