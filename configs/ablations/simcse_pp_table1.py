"""SimCSE++, Table 1: more and less noise on positive or on negative pairs, on each STS task.

More noise is a Gaussian on the embedding. Its variance is 0.1 in the paper; a commented line of its authors' code
(`z2+0.1*torch.normal(0,1,z2.size())`) has the standard deviation 0.1, a variance of 0.01. Both are rows. (That line
adds it to one view, for positive and negative pairs alike; the rows here follow the paper's text.) Less noise is the
mean over ten masks, so an example is encoded 22 times in place of two, with ten times the memory;
`--config.parallel.chunk_size=16` bounds it. The other pairs have the usual views, and m of equation 3 is 1: without a
change that is SimCSE, the first row. It is scored every 125 steps, as all of SimCSE++ (section 5.1).
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

COLUMNS = (*TASKS, "sts_avg")


def get_config() -> config_dict.ConfigDict:
    """SimCSE of BERT-base, with positive and negative pairs that may have views of their own."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.objective.info_nce.weight = 0.0
    config.objective.off_dropout.weight = 1.0
    config.objective.off_dropout.m = 1.0
    config.views.negative = "independent"
    config.views.noise = 0.1
    config.views.samples = 10
    config.eval.every = 125
    columns = (*COLUMNS, "stsb_dev")
    config.sweep = sweep_defaults("Dropout noise", "SimCSE++, Table 1", columns, baseline="SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table, those with more noise in both readings of "variance 0.1"."""
    info_nce = {"objective.info_nce.weight": 1.0, "objective.off_dropout.weight": 0.0}
    noises = {"variance": 0.1, "deviation": 0.01}

    def row(name: str, fields: dict, *scores: float) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)))

    def noisy(pairs: str, *scores: float) -> list[Variant]:
        return [
            row(f"{pairs}s + noise of {name} 0.1", {f"views.{pairs}": "noisy", "views.noise": variance}, *scores)
            for name, variance in noises.items()
        ]

    less = {pairs: {f"views.{pairs}": "mean"} for pairs in ("positive", "negative")}
    return (
        row("SimCSE", info_nce, 68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25),
        *noisy("positive", 68.59, 82.57, 73.26, 80.79, 76.72, 75.56, 69.24, 75.25),
        row("positives - noise", less["positive"], 55.22, 71.78, 60.55, 70.79, 72.95, 64.58, 63.00, 65.55),
        *noisy("negative", 65.13, 82.45, 71.69, 79.67, 77.73, 75.03, 70.04, 74.53),
        row("negatives - noise", less["negative"], 70.25, 83.73, 75.61, 82.25, 78.77, 77.58, 71.26, 77.06),
    )
