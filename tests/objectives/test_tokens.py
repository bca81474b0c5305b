import jax.numpy as jnp
import numpy as np
from support.steps import batch, mixed_batch, settings

from simcse_jax.models.masking import Masking
from simcse_jax.models.parameters import WORD_EMBEDDING
from simcse_jax.objectives.tokens import Tokens
from simcse_jax.objectives.views import MASKING, Plan, column_number
from simcse_jax.training.rows import Rows

LOSSES = jnp.arange(2 * 8 * 16.0).reshape(16, 16)  # of two columns of eight rows


def tokens(data, present=None):
    rows = Rows(data, jnp.int32(0), settings(), ())
    params = {WORD_EMBEDDING: jnp.zeros((40, 2))}
    masking = Masking(3, (0, 1, 2, 3))
    return Tokens(Plan(3, "off"), rows.tokens, rows.keys, print, {}, params, {}, masking, present)


def test_sums_are_over_the_columns_of_a_row_without_sentences_that_are_missing():
    counted = LOSSES % 3 == 0
    sums, counts = tokens(batch(3)).sums(LOSSES, counted, [0, 2])
    whole = np.where(counted, LOSSES, 0).sum(1).reshape(2, 8)
    np.testing.assert_allclose(sums, whole.sum(0))
    assert int(counts.sum()) == int(counted.sum())
    there = mixed_batch()["present"]
    sums, _ = tokens(batch(3), there).sums(LOSSES, counted, [0, 2])
    np.testing.assert_allclose(sums, whole[0] + np.where(there[:, 2], whole[1], 0))


def test_a_column_s_masked_tokens_are_its_own_whatever_other_columns_are_read():
    given = tokens(batch(3))
    shown, selected = given.masked_columns([0, 2])
    alone, chosen = given.masked_columns([2])
    np.testing.assert_array_equal(shown[8:], alone)
    np.testing.assert_array_equal(selected[8:], chosen)
    assert 0.05 < selected.sum() / batch(3)["attention_mask"][:, [0, 2]].sum() < 0.3
    assert column_number(MASKING, 2) == MASKING + 2
