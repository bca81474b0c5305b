"""Supervised SimCSE from RoBERTa (SimCSE, Table A.1): SNLI and MNLI triplets, three epochs, the head kept.

`sup_roberta` is RoBERTa-base, `sup_roberta:large` RoBERTa-large.

The file: `python -m simcse_jax.build_data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(size: str = "base") -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    sizes = {"base": ("roberta-base", 512, 5e-5), "large": ("roberta-large", 512, 1e-5)}
    config.model.init_from, config.train.batch_size, config.train.learning_rate = choose_variant(size, sizes)
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.epochs = 3
    return config
