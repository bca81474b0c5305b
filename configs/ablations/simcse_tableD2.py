"""SimCSE, Table D.2: the auxiliary masked-language-model loss and its weight λ, supervised, STS-B dev.

The table's other column is the average of the transfer tasks, which is not measured here.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Supervised SimCSE of BERT-base, as `configs/sup_bert.py`."""
    config = default_config()
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.batch_size = 512
    config.train.learning_rate = 5e-5
    config.train.epochs = 3
    config.sweep = sweep_defaults("Auxiliary MLM loss", "SimCSE, Table D.2", ("stsb_dev",), baseline="without MLM")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table."""
    paper = {0.01: 85.7, 0.1: 85.7, 1.0: 85.1}
    return (
        Variant("without MLM", {}, {"stsb_dev": 86.2}),
        *(
            Variant(f"lambda {weight:g}", {"objective.mlm.weight": weight}, {"stsb_dev": score})
            for weight, score in paper.items()
        ),
    )
