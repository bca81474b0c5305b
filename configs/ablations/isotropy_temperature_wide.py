"""The isotropy paper, Appendix A: temperatures in powers of ten.

MPNet-base, as in the paper, which leaves open the learning rate (here that of supervised SimCSE), the length (32
tokens), and whether its loss is symmetric; this is its equation 2, one way, and
`--config.objective.info_nce.symmetric=True` is the other. The paper measures the space every 200 steps and gives no
score: these measures are in each run's `metrics.jsonl`, with the checkpoints next to it (25 for 4,912 steps, 1.3 GB
each; none with `--config.checkpoint.keep_every=0`). This table is STS-B dev.

The file: `python -m simcse_jax.build_data nli_pairs --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Entailment pairs of NLI, one epoch of batches of 64, mean pooling."""
    config = default_config()
    config.model.init_from = "microsoft/mpnet-base"
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "data/nli_pairs.csv"
    config.data.positives = "entailment"
    config.train.learning_rate = 5e-5
    config.eval.every = 200
    config.analysis.every = 200
    config.checkpoint.keep_every = 200
    config.sweep = sweep_defaults(
        "Temperatures, by tens", "On Isotropy and Learning Dynamics, Appendix A", ("stsb_dev",), baseline="0.05"
    )
    return config


def get_variants() -> tuple[Variant, ...]:
    """The five temperatures."""
    temperature = "objective.info_nce.temperature"
    return tuple(Variant(f"{value:g}", {temperature: value}) for value in (0.001, 0.01, 0.05, 0.1, 1.0))
