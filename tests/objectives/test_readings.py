"""Names that choose a formula: each gives another loss."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.objectives import barlow_twins as barlow_twins_file
from simcse_jax.objectives import dimension_wise as dimension_wise_file
from simcse_jax.objectives import off_dropout as off_dropout_file
from simcse_jax.objectives.barlow_twins import barlow_twins
from simcse_jax.objectives.dimension_wise import dimension_wise
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.off_dropout import off_dropout
from simcse_jax.objectives.similarity import MEASURES

FIRST, SECOND = (jnp.asarray(np.random.default_rng(seed).normal(size=(4, 3)), jnp.float32) for seed in (0, 1))


@functools.partial(jax.jit, static_argnums=0)
def similarity(name):
    return info_nce(FIRST, SECOND, None, jnp.arange(4), temperature=1.0, similarity=name).sum()


@functools.partial(jax.jit, static_argnums=0)
def off_dropout_reading(name):
    return off_dropout(FIRST, SECOND, FIRST, SECOND, None, jnp.arange(4), temperature=1.0, m=0.5, reading=name).sum()


@functools.partial(jax.jit, static_argnums=0)
def dimension_wise_reading(name):
    return dimension_wise(FIRST, SECOND, lambda x: x, temperature=5.0, reading=name)


@functools.partial(jax.jit, static_argnums=0)
def barlow_twins_reading(name):
    return barlow_twins(FIRST, SECOND, jnp.zeros((0, 3)), lambda x: x, off_diagonal_weight=0.1, reading=name)


CHOICES = [
    (similarity, MEASURES),
    (off_dropout_reading, off_dropout_file.READINGS),
    (dimension_wise_reading, dimension_wise_file.READINGS),
    (barlow_twins_reading, barlow_twins_file.READINGS),
]


@pytest.mark.parametrize("compute, names", CHOICES)
def test_each_name_gives_another_loss(compute, names):
    assert len({float(compute(name)) for name in names}) == len(names)
