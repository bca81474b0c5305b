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
SHAPES = [(1, 0), (1, 1), (2, 1), (7, 0), (7, 1), (7, 3), (7, 6), (7, 7)]  # T and W


def rates(schedule, total, warmup, milestones=()):
    settings = {"learning_rate": RATE, "total_steps": total, "warmup": warmup, "milestones": milestones}
    settings = jax.tree.map(jnp.float32, settings | {"milestones": np.reshape(milestones, (-1, 2))})
    return jax.vmap(lambda step: learning_rate(schedule, step, settings))(jnp.arange(total))


def rates_of_torch(total, make):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule, found = make(optimizer), []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_each_schedule_of_the_fields_is_there():
    assert list(SCHEDULES) == list(NAMES)


@pytest.mark.parametrize(("total", "warmup"), SHAPES)
def test_linear_and_constant_are_those_of_transformers(total, warmup):
    transformers = pytest.importorskip("transformers")
    linear = transformers.get_linear_schedule_with_warmup
    expected = rates_of_torch(total, lambda optimizer: linear(optimizer, warmup, total))
    np.testing.assert_allclose(rates("linear", total, warmup), expected, rtol=1e-6, atol=1e-6 * RATE)
    constant = transformers.get_constant_schedule_with_warmup
    expected = rates_of_torch(total, lambda optimizer: constant(optimizer, warmup))
    np.testing.assert_allclose(rates("constant", total, warmup), expected, rtol=1e-6)


def test_without_a_warmup_the_rate_falls_from_the_first_step_as_it_always_has():
    expected = jnp.float32(RATE) * (1.0 - jnp.arange(1000) / jnp.float32(1000))
    np.testing.assert_array_equal(rates("linear", 1000, 0), expected)


@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_steps_change_the_rate_from_their_milestones_on(warmup):
    milestones = [(2, 0.8), (3, 0.6), (6, 0.0), (6000, 7.0)]
    factors = [1.0, 1.0, 0.8, 0.6, 0.6, 0.6, 0.0, 0.0]
    rising = [min(step / max(warmup, 1), 1) if step < warmup else 1 for step in range(8)]
    expected = [RATE * (rise if rise < 1 else factor) for rise, factor in zip(rising, factors, strict=True)]
    np.testing.assert_allclose(rates("steps", 8, warmup, milestones), expected, rtol=1e-6)


def test_ct_s_rates():
    config = default_config()
    config.train.learning_rate, config.train.schedule = 1e-5, "steps"
    config.train.milestones = "500:0.8,1000:0.6,1500:0.4,2000:0.2"
    settings = make_settings(config, 5000)
    found = jax.vmap(lambda step: learning_rate("steps", step, settings))(jnp.array([0, 499, 500, 1999, 2000, 4999]))
    np.testing.assert_allclose(found, [1e-5, 1e-5, 8e-6, 4e-6, 2e-6, 2e-6], rtol=1e-6)


@pytest.mark.parametrize(("total", "share"), [(1, 0.1), (9, 0.1), (10, 0.1), (25, 0.1), (25, 0.0), (25, 1.0)])
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
    arguments = pytest.importorskip("transformers").TrainingArguments
    by_transformers = arguments.get_warmup_steps(type("", (), {"warmup_steps": share})(), total)
    assert steps == by_transformers or share == 1.0  # there a whole number is a number of steps
    config = default_config()
    config.train.warmup = share
    assert make_settings(config, total)["warmup"] == steps
