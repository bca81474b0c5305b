"""The config of a run: its fields, their bounds, and how they are read from files and the command line.

A recipe in `configs/` imports `default_config` and `choose_variant` from here.
"""

from simcse_jax.config.fields import default_config
from simcse_jax.config.recipes import choose_variant

__all__ = ["choose_variant", "default_config"]
