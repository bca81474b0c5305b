"""The isotropy paper, Appendix A: temperatures in powers of ten.

The encoder is BERT-base where the paper has MPNet-base. The paper leaves open the learning rate (supervised SimCSE's
here), the length (32 tokens), and whether its loss looks both ways; this is its equation 2, one way, and
`--config.objective.info_nce.symmetric=True` is the other. It looks at the geometry of checkpoints every 200 steps
(`--config.checkpoint.keep_every=200` keeps them) and gives no score; this table is STS-B dev.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Entailment pairs of NLI, one epoch of batches of 64, mean pooling."""
    config = default_config()
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "data/nli_pairs.csv"
    config.data.positives = "entailment"
    config.train.learning_rate = 5e-5
    config.eval.every = 200
    config.sweep = sweep_defaults(
        "Temperatures, by tens", "On Isotropy and Learning Dynamics, Appendix A", ("stsb_dev",), baseline="0.05"
    )
    return config


def get_variants() -> tuple[Variant, ...]:
    """The five temperatures."""
    temperature = "objective.info_nce.temperature"
    return tuple(Variant(f"{value:g}", {temperature: value}) for value in (0.001, 0.01, 0.05, 0.1, 1.0))
