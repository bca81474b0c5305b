"""SimCSE, Table 6: poolers, STS-B dev.

`ablations/simcse_table6` is unsupervised SimCSE, `ablations/simcse_table6:sup` supervised. The paper's "first-last
average" has two rows. The code of the time, and the README on Table 5, average the static word embeddings and the last
layer: `avg_static_last`. The code was later changed to layer 1 and the last, `avg_first_last`, and an author then wrote
that no result of the paper depends on it (issue 133), which issue 285 disproves for Table 5 and leaves open for this
one.

The file: `simcse-jax build-data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

BASELINES = {"unsup": "cls with head in training", "sup": "cls with head"}


def get_config(setting: str = "unsup") -> config_dict.ConfigDict:
    """SimCSE of BERT-base."""
    baseline = choose_variant(setting, BASELINES)
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
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
    first_last = {"unsup": 81.2, "sup": 86.1}
    rows = {
        "cls with head": ("cls", "always", {"unsup": 81.7, "sup": 86.2}),
        "cls with head in training": ("cls", "train", {"unsup": 82.5, "sup": 85.8}),
        "cls without head": ("cls", "none", {"unsup": 80.9, "sup": 86.2}),
        "avg_static_last": ("avg_static_last", "none", first_last),
        "avg_first_last": ("avg_first_last", "none", first_last),
    }
    return tuple(
        Variant(name, {"model.pooler": pooler, "model.mlp": mlp}, {"stsb_dev": paper[setting]})
        for name, (pooler, mlp, paper) in rows.items()
    )
