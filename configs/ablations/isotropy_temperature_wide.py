"""The isotropy paper, Appendix A: temperatures in powers of ten.

Everything else, and what is open in the paper, is that of `isotropy_temperature.py`.
"""

from ml_collections import config_dict

from simcse_jax.configs.ablations.isotropy_temperature import setting
from simcse_jax.training.sweeps.variants import Variant


def get_config() -> config_dict.ConfigDict:
    """Temperature 0.05 is the baseline."""
    return setting("Temperatures, by tens", "Appendix A", baseline="0.05")


def get_variants() -> tuple[Variant, ...]:
    """The five temperatures."""
    temperature = "objective.info_nce.temperature"
    return tuple(Variant(f"{value:g}", {temperature: value}) for value in (0.001, 0.01, 0.05, 0.1, 1.0))
