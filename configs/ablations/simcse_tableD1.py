"""SimCSE, Table D.1: cosine similarity at several temperatures, and the dot product ("N/A"), supervised, STS-B dev.

The paper gives no temperature for the dot product; 1 leaves it unchanged.

The file: `simcse-jax build-data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Supervised SimCSE of BERT-base, as `configs/sup_bert.py`."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.batch_size = 512
    config.train.learning_rate = 5e-5
    config.train.epochs = 3
    config.sweep = sweep_defaults("Temperatures", "SimCSE, Table D.1", ("stsb_dev",), baseline="0.05")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The columns of the table."""
    temperature = "objective.info_nce.temperature"
    paper = {"0.001": 84.9, "0.01": 85.4, "0.05": 86.2, "0.1": 82.0, "1": 64.0}
    dot = {"objective.info_nce.similarity": "dot", temperature: 1.0}
    return (
        Variant("dot product", dot, {"stsb_dev": 85.9}),
        *(Variant(name, {temperature: float(name)}, {"stsb_dev": score}) for name, score in paper.items()),
    )
