from pathlib import Path

from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

SWEEP = """
from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

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


VARIANTS = (
    Variant("base", {}, {"stsb_dev": 82.5}),
    Variant("better", {}, {"stsb_dev": 84.0, "sts_avg": 76.25}),
    Variant("a|b", {}),
)
# Differences of `better` from `base`: 1, 2, 3. Their mean is 2, their standard deviation 1, so t = 2 / (1 / √3) = 3.464
# with two degrees of freedom; there p = 1 - t / √(t² + 2) = 1 - 3.464 / √14 = 0.0742.
RESULTS = {"base": {42: {"stsb_dev": 70.0}, 43: {"stsb_dev": 72.0}, 44: {"stsb_dev": 74.0}}}
RESULTS |= {"better": {42: {"stsb_dev": 71.0, "sts_avg": 60.0}, 43: {"stsb_dev": 74.0}, 44: {"stsb_dev": 77.0}}}


def sweep(metrics=("stsb_dev",), **fields):
    sweep = sweep_defaults("A title", "SimCSE, Table 3", metrics, "base")
    sweep.update(fields)
    return sweep
