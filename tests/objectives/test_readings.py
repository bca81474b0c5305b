"""Names that choose a formula: each gives another loss."""

import jax
import jax.numpy as jnp
import pytest
from support.checks import random

from simcse_jax.objectives import barlow_twins, dimension_wise, off_dropout
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.similarity import MEASURES

FIRST, SECOND = random(2, 4, 3)
FOUR = FIRST, SECOND, FIRST, SECOND, None, jnp.arange(4)


def alone(x):
    return x


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        (lambda name: info_nce(*FOUR[2:], temperature=1.0, similarity=name), MEASURES),
        (lambda name: off_dropout.off_dropout(*FOUR, temperature=1.0, m=0.5, reading=name), off_dropout.READINGS),
        (
            lambda name: dimension_wise.dimension_wise(*FOUR[:2], alone, temperature=5.0, reading=name),
            dimension_wise.READINGS,
        ),
        (
            lambda name: barlow_twins.barlow_twins(
                *FOUR[:2], jnp.zeros((0, 3)), alone, off_diagonal_weight=0.1, reading=name
            ),
            barlow_twins.READINGS,
        ),
    ],
)
def test_each_name_gives_another_loss(loss, names):
    losses = jax.jit(lambda: [loss(name).sum() for name in names])()
    assert len({float(value) for value in losses}) == len(names)
