"""SimCSE++, Table 1: more and less noise on positive or on negative pairs, test average.

More noise is a Gaussian on the embedding. Its variance is 0.1 in the paper; a commented line of its authors' code
(`z2+0.1*torch.normal(0,1,z2.size())`) has the standard deviation 0.1, a variance of 0.01. Both are rows. Less noise is
the mean over ten masks. The other pairs have the usual views, and m of equation 3 is 1: without a change that is
SimCSE, the first row. It is scored every 125 steps, as all of SimCSE++ (section 5.1).
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """SimCSE of BERT-base, with positive and negative pairs that may have views of their own."""
    config = default_config()
    config.objective.info_nce.weight = 0.0
    config.objective.off_dropout.weight = 1.0
    config.objective.off_dropout.m = 1.0
    config.views.negative = "independent"
    config.views.noise = 0.1
    config.views.samples = 10
    config.eval.every = 125
    config.sweep = sweep_defaults("Dropout noise", "SimCSE++, Table 1", ("sts_avg", "stsb_dev"), baseline="SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table, those with more noise in both readings of "variance 0.1"."""
    info_nce = {"objective.info_nce.weight": 1.0, "objective.off_dropout.weight": 0.0}
    noises = {"variance": 0.1, "deviation": 0.01}

    def noisy(pairs: str, score: float) -> list[Variant]:
        return [
            Variant(
                f"{pairs}s + noise of {name} 0.1",
                {f"views.{pairs}": "noisy", "views.noise": variance},
                {"sts_avg": score},
            )
            for name, variance in noises.items()
        ]

    return (
        Variant("SimCSE", info_nce, {"sts_avg": 76.25}),
        *noisy("positive", 75.25),
        Variant("positives - noise", {"views.positive": "mean"}, {"sts_avg": 65.55}),
        *noisy("negative", 74.53),
        Variant("negatives - noise", {"views.negative": "mean"}, {"sts_avg": 77.06}),
    )
