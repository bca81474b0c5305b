import jax.numpy as jnp
import numpy as np
import pytest
from support.steps import batch, mixed_batch, settings

from simcse_jax.objectives.rows import Rows
from simcse_jax.objectives.tokens import Tokens
from simcse_jax.objectives.views import Plan

pytestmark = pytest.mark.exact

LOSSES = jnp.arange(2 * 8 * 16.0).reshape(16, 16)  # of two columns of eight rows


def tokens(data):
    return Tokens(Rows(data, jnp.int32(0), settings()), Plan(3, "off"), {}, {}, {})


def test_sums_are_over_the_columns_of_a_row_without_sentences_that_are_missing():
    counted = LOSSES % 3 == 0
    sums, counts = tokens(batch(3)).sums(LOSSES, counted, [0, 2])
    whole = np.where(counted, LOSSES, 0).sum(1).reshape(2, 8)
    np.testing.assert_allclose(sums, whole.sum(0))
    assert int(counts.sum()) == int(counted.sum())
    there = mixed_batch()["present"]
    sums, _ = tokens(batch(3) | {"present": there}).sums(LOSSES, counted, [0, 2])
    np.testing.assert_allclose(sums, whole[0] + np.where(there[:, 2], whole[1], 0))
