import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.config.fields import SCHEDULES as NAMES
from simcse_jax.config.fields import default_config
from simcse_jax.training.learning_rate import SCHEDULES, learning_rate, warmup_steps
from simcse_jax.training.setup import make_settings

RATE = 2e-5


def rates(schedule, total, warmup, milestones=()):
    settings = {"learning_rate": RATE, "total_steps": total, "warmup": warmup, "milestones": milestones}
    settings = jax.tree.map(jnp.float32, settings | {"milestones": np.reshape(milestones, (-1, 2))})
    return _rates(schedule, jnp.arange(total), settings)


@functools.partial(jax.jit, static_argnums=0)
def _rates(schedule, steps, settings):
    return jax.vmap(lambda step: learning_rate(schedule, step, settings))(steps)


@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (1, 1), (7, 0), (7, 3), (7, 6), (7, 7)])
def test_linear_and_constant_are_those_of_transformers(total, warmup):
    rising = [step / max(1, warmup) if step < warmup else 1.0 for step in range(total)]
    falling = [1 if step < warmup else (total - step) / max(1, total - warmup) for step in range(total)]
    linear = RATE * np.array(rising) * falling
    np.testing.assert_allclose(rates("linear", total, warmup), linear, rtol=1e-6, atol=1e-6 * RATE)
    np.testing.assert_allclose(rates("constant", total, warmup), RATE * np.array(rising), rtol=1e-6)


@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_steps_change_the_rate_from_their_milestones_on(warmup):
    milestones = [(2, 0.8), (3, 0.6), (6, 0.0), (6000, 7.0)]
    factors = [1.0, 1.0, 0.8, 0.6, 0.6, 0.6, 0.0, 0.0]
    rising = [min(step / max(warmup, 1), 1) if step < warmup else 1 for step in range(8)]
    expected = [RATE * (rise if rise < 1 else factor) for rise, factor in zip(rising, factors, strict=True)]
    np.testing.assert_allclose(rates("steps", 8, warmup, milestones), expected, rtol=1e-6)


def test_each_schedule_of_the_fields_is_there_and_ct_s_rates_are_one_s():
    assert list(SCHEDULES) == list(NAMES)
    config = default_config()
    config.train.learning_rate, config.train.schedule = 1e-5, "steps"
    config.train.milestones = "500:0.8,1000:0.6,1500:0.4,2000:0.2"
    found = _rates("steps", jnp.array([0, 499, 500, 1999, 2000, 4999]), make_settings(config, 5000))
    np.testing.assert_allclose(found, [1e-5, 1e-5, 8e-6, 4e-6, 2e-6, 2e-6], rtol=1e-6)


@pytest.mark.parametrize(("total", "share"), [(1, 0.1), (9, 0.1), (25, 0.1), (25, 0.0), (25, 1.0)])
def test_the_slanted_triangle_is_allennlp_s(total, share):
    def value(update):  # of allennlp's SlantedTriangular with its defaults, cut_frac=0.1 and ratio=32
        cut = int(total * share)
        rising = update / cut if update < cut else 1 - (update - cut) / max(total - cut, 1)
        return RATE * (1 + rising * 31) / 32

    expected = [value(update) for update in range(1, total + 1)]
    found = rates("slanted_triangular", total, warmup_steps("slanted_triangular", share, total))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("share", "total", "steps"), [(0.1, 30, 3), (0.1, 31, 4), (0.0, 9, 0), (1.0, 9, 9)])
def test_a_share_of_the_steps_is_rounded_up_as_by_transformers(share, total, steps):
    assert warmup_steps("linear", share, total) == steps == math.ceil(total * share)
    config = default_config()
    config.train.warmup = share
    assert make_settings(config, total)["warmup"] == steps
