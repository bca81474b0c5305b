"""SBERT (Reimers and Gurevych 2019, section 3.1), the supervised baseline of SimCSE and SimCSE++: a classifier of NLI.

Softmax of (u, v, |u − v|) over entailment, neutral and contradiction, mean pooling, one epoch. SBERT warms its learning
rate up over the first tenth of the steps; here it falls from the first step, as in all recipes. Columns of the data:
sent0, sent1, label.

The file: `python -m simcse_jax.build_data nli_pairs --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config


def get_config() -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "data/nli_pairs.csv"
    config.objective.info_nce.weight = 0.0
    config.objective.softmax_nli.weight = 1.0
    config.train.batch_size = 16
    config.train.learning_rate = 2e-5
    config.eval.every = 1000
    return config
