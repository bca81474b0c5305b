"""The isotropy paper, Appendix B: batch sizes at the best temperature, 0.05.

The model is kept every 200 steps: 24 checkpoints of 1.3 GB each for batches of 64, 98 for 16 and 6 for 256 (none with
`--config.checkpoint.keep_every=0`). Everything else, and what is open in the paper, is that of
`isotropy_temperature.py`.
"""

from ml_collections import config_dict

from simcse_jax.configs.ablations.isotropy_temperature import setting
from simcse_jax.training.sweeps.variants import Variant


def get_config() -> config_dict.ConfigDict:
    """Batches of 64 are the baseline."""
    return setting("Batch sizes", "Appendix B", baseline="64")


def get_variants() -> tuple[Variant, ...]:
    """The three batch sizes."""
    return tuple(Variant(str(size), {"train.batch_size": size}) for size in (16, 64, 256))
