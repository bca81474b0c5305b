"""SimCSE++, Table 3: off-dropout and dimension-wise contrastive learning, alone and together, test average.

Variants: `base` (BERT-base, the default), `large`, `sbert_base`, `sbert_large` (SBERT's checkpoints of NLI). The paper
has the two ideas separately for `base` only. All rows train with the settings of SimCSE++ (section 5.1), also SimCSE,
whose number the paper quotes. The reading of equation 5 is `--config.objective.dimension_wise.reading`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults

ENCODERS = {  # weights, learning rate
    "base": ("bert-base-uncased", 3e-5),
    "large": ("bert-large-uncased", 8e-6),
    "sbert_base": ("sentence-transformers/bert-base-nli-mean-tokens", 3e-5),
    "sbert_large": ("sentence-transformers/bert-large-nli-mean-tokens", 8e-6),
}
PAPER = {
    "base": {"SimCSE": 76.25, "off-dropout": 77.13, "dimension-wise": 77.40, "SimCSE++": 78.05},
    "large": {"SimCSE": 78.41, "SimCSE++": 79.30},
    "sbert_base": {"SimCSE": 77.33, "SimCSE++": 79.25},
    "sbert_large": {"SimCSE": 80.03, "SimCSE++": 80.63},
}


def get_config(encoder: str = "base") -> config_dict.ConfigDict:
    """SimCSE++, as `configs/simcse_plus_plus.py`; the weights of its terms are the variants'."""
    config = default_config()
    config.model.init_from, config.train.learning_rate = choose_variant(encoder, ENCODERS)
    config.objective.off_dropout.temperature = 0.05
    config.objective.off_dropout.m = 0.9
    config.objective.dimension_wise.temperature = 5.0
    config.objective.dimension_wise.reading = "released"
    config.eval.every = 125
    title = f"SimCSE++, {encoder}"
    config.sweep = sweep_defaults(title, "SimCSE++, Table 3", ("sts_avg", "stsb_dev"), baseline="SimCSE")
    return config


def get_variants(encoder: str = "base") -> tuple[Variant, ...]:
    """The rows of the table for the encoder."""
    off_dropout = {"objective.info_nce.weight": 0.0, "objective.off_dropout.weight": 1.0}
    dimension_wise = {"objective.dimension_wise.weight": 0.1}
    fields = {
        "SimCSE": {},
        "off-dropout": off_dropout,
        "dimension-wise": dimension_wise,
        "SimCSE++": off_dropout | dimension_wise,
    }
    paper = choose_variant(encoder, PAPER)
    return tuple(Variant(name, fields[name], {"sts_avg": score}) for name, score in paper.items())
