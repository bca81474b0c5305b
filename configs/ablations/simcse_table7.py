"""SimCSE, Table 7: hard negatives and their weight α, supervised, STS-B dev.

All rows read the same file, `data/nli_with_neutral.csv` (sent0, sent1, hard_neg, neutral), and so train on the same
premises: only the columns that they take differ. For the rows without neutral hypotheses any file of triplets is
enough, e.g. `--config.data.train=data/nli_for_simcse.csv`.

The file: `simcse-jax build-data nli_neutral --source MNLI SNLI`, or `nli`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Supervised SimCSE of BERT-base, as `configs/sup_bert.py`."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.mlp = "always"
    config.data.train = "data/nli_with_neutral.csv"
    config.train.batch_size = 512
    config.train.learning_rate = 5e-5
    config.train.epochs = 3
    config.sweep = sweep_defaults("Hard negatives", "SimCSE, Table 7", ("stsb_dev",), baseline="alpha 1.0")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The columns of the table."""
    alpha = "objective.info_nce.hard_negative_weight"
    pair = {"data.columns.anchor": "sent0", "data.columns.positive": "sent1"}
    all_columns = pair | {"data.columns.negative": "hard_neg", "data.columns.neutral": "neutral"}
    return (
        Variant("no hard negatives", pair, {"stsb_dev": 84.9}),
        Variant("alpha 0.5", {alpha: 0.5}, {"stsb_dev": 86.1}),
        Variant("alpha 1.0", {alpha: 1.0}, {"stsb_dev": 86.2}),
        Variant("alpha 2.0", {alpha: 2.0}, {"stsb_dev": 86.2}),
        Variant("with neutral", all_columns | {alpha: 1.0}, {"stsb_dev": 85.3}),
    )
