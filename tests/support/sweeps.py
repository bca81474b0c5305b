"""A small sweep, as a file."""

from pathlib import Path

SWEEP = """
from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults

def get_config():
    config = default_config()
    config.model.init_from = {model!r}
    config.data.train = {train!r}
    config.data.max_length = 16
    config.train.batch_size = 8
    config.train.max_steps = {steps}
    config.train.log_every = 1
    config.train.learning_rate = 1e-3
    config.eval.data = {dev!r}
    config.eval.every = {every}
    config.parallel.devices = 1
    config.sweep = sweep_defaults("A test", "nowhere", ("stsb_dev",), baseline="a")
    config.sweep.seeds = {seeds}
    return config

def get_variants():
    return ({variants})
"""


def sweep_text(model: Path, corpus: dict[str, Path], variants: str, steps: int, seeds: tuple[int, ...]) -> str:
    """A sweep's file: short runs, scored in their middle and at their end. `variants` are calls of `Variant`."""
    data = {"train": str(corpus["txt"]), "dev": str(corpus["dev"])}
    return SWEEP.format(model=str(model), **data, variants=variants, steps=steps, every=steps // 2, seeds=seeds)
