"""The isotropy paper, Appendix D: mean, [CLS] and max pooling.

Appendix D takes the setting of section 4 without naming a temperature; this is its best one, 0.05. Everything else, and
what is open in the paper, is that of `isotropy_temperature.py`.
"""

from ml_collections import config_dict

from simcse_jax.configs.ablations.isotropy_temperature import setting
from simcse_jax.training.sweeps.variants import Variant


def get_config() -> config_dict.ConfigDict:
    """Mean pooling is the baseline."""
    return setting("Poolers", "Appendix D", baseline="avg")


def get_variants() -> tuple[Variant, ...]:
    """The three poolers, none with a head."""
    return tuple(Variant(pooler, {"model.pooler": pooler}) for pooler in ("avg", "cls", "max"))
