"""SimCSE++, Table 2: Barlow Twins added to InfoNCE, with artificial rows against its rank bottleneck, test average.

The paper gives neither the weight of the added loss nor its λ_BT. "Additive" is read as weight 1, which
its fall of twelve points does not contradict, and λ_BT is 0.005, that of Barlow Twins (Zbontar et al., 2021). Both
can be set: `--config.objective.barlow_twins.weight`, `--config.objective.barlow_twins.off_diagonal_weight`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base with Barlow Twins."""
    config = default_config()
    config.objective.barlow_twins.weight = 1.0
    config.objective.barlow_twins.off_diagonal_weight = 0.005
    config.eval.every = 125
    config.sweep = sweep_defaults("Barlow Twins", "SimCSE++, Table 2", ("sts_avg", "stsb_dev"), baseline="SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table."""
    paper = {0: 64.05, 100: 71.37, 300: 73.56, 704: 76.08}
    return (
        Variant("SimCSE", {"objective.barlow_twins.weight": 0.0}, {"sts_avg": 76.25}),
        *(
            Variant(f"{rows} artificial", {"objective.barlow_twins.artificial": rows}, {"sts_avg": score})
            for rows, score in paper.items()
        ),
    )
