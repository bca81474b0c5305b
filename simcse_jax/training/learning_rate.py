"""The learning rate of each step: schedules, with a warm-up.

In all of them s is the number of updates before this one, T that of the run, W that of the warm-up, and the first W
updates have the share s / W of `learning_rate`, as in transformers: the first update of a run with a warm-up has rate
0. `slanted_triangular` rises in its own way.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray

RATIO = 32.0  # of the largest rate of `slanted_triangular` to its smallest, AllenNLP's default

Numbers = Mapping[str, Any]
Step = Int[AnyArray, ""]
Share = Float[Array, ""]


def learning_rate(schedule: str, step: Step, settings: Numbers) -> Share:
    """The learning rate of the update that follows `step` earlier ones; `milestones` are (M, 2) steps and factors."""
    return settings["learning_rate"] * SCHEDULES[schedule](step, settings)


def warmup_steps(schedule: str, share: float, total: int) -> int:
    """W, from `train.warmup`.

    ⌈share · T⌉, as the trainers of transformers and sentence-transformers round it; SBERT's examples too. Of
    `slanted_triangular` it is ⌊share · T⌋, AllenNLP's cut.
    """
    return (math.floor if schedule == "slanted_triangular" else math.ceil)(share * total)


def _linear(step: Step, settings: Numbers) -> Share:
    """Falls to zero: (T − s) / (T − W) after the warm-up (transformers' get_linear_schedule_with_warmup)."""
    total, warmup = settings["total_steps"], settings["warmup"]
    return _rising(step, warmup, 1.0 - (step - warmup) / jnp.maximum(total - warmup, 1.0))


def _constant(step: Step, settings: Numbers) -> Share:
    """1 after the warm-up (transformers' get_constant_schedule_with_warmup)."""
    return _rising(step, settings["warmup"], jnp.float32(1.0))


def _steps(step: Step, settings: Numbers) -> Share:
    """The factor of the last milestone that is not above s, 1 before the first one (CT)."""
    first, factors = settings["milestones"].T
    passed = jnp.sum(first <= step)
    factor = jnp.concatenate([jnp.ones(1), factors])[passed]
    return _rising(step, settings["warmup"], factor)


def _slanted_triangular(step: Step, settings: Numbers) -> Share:
    """(1 + p · 31) / 32, p rising to 1 over the first W steps, then falling to 0 (Howard and Ruder 2018, equation 3).

    As in AllenNLP, with which DeCLUTR was trained: its trainer counts updates from 1, so p = (s + 1) / W before the
    cut, and 1 − (s + 1 − W) / (T − W) from there on. The last update has the rate 1/32.
    """
    total, cut, update = settings["total_steps"], settings["warmup"], step + 1.0
    falling = 1.0 - (update - cut) / jnp.maximum(total - cut, 1.0)
    return (1.0 + _rising(update, cut, falling) * (RATIO - 1.0)) / RATIO


def _rising(step: Step | Share, end: Share, share: Share) -> Share:
    """The share of the way to `end`, and from there on `share`."""
    return jnp.where(step < end, step / jnp.maximum(end, 1.0), share)


SCHEDULES: dict[str, Callable[[Step, Numbers], Share]] = {
    "linear": _linear,
    "constant": _constant,
    "steps": _steps,
    "slanted_triangular": _slanted_triangular,
}
