import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.steps import BATCH, batch, settings

from simcse_jax.models.masking import Masking
from simcse_jax.objectives.rows import Rows, dropout_keys
from simcse_jax.objectives.views import MASKING, column_number

pytestmark = pytest.mark.exact


def words(seed, step, index, numbers=(0, 1)):
    return np.asarray(jax.random.key_data(dropout_keys(seed, step, jnp.asarray(index), numbers)))


def test_every_example_step_view_and_seed_has_its_own_key():
    keys = np.concatenate([words(s, t, np.arange(8)).reshape(-1, 2) for s in range(3) for t in range(3)])
    assert len(np.unique(keys, axis=0)) == 3 * 3 * 8 * 2


def test_a_key_depends_on_the_place_in_the_global_batch_alone():
    whole = words(1, 2, np.arange(8))
    np.testing.assert_array_equal(words(1, 2, [6, 7]), whole[:, 6:])
    np.testing.assert_array_equal(words(1, 2, [3, 0]), whole[:, [3, 0]])
    np.testing.assert_array_equal(words(1, 2, np.arange(8), numbers=(1, 7, 0))[[2, 0]], whole)


def test_keys_are_threefry_with_any_default():
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_impl(dropout_keys(0, 0, jnp.arange(2), [0, 1])) == "threefry2x32"


def test_rows_give_their_columns_one_below_the_other_and_a_key_to_each_number():
    data = batch(3)
    rows = Rows({name: x[2:4] for name, x in data.items()}, jnp.int32(5), settings(), (7, 8, 9))
    ids, mask = rows.read([2, 0])
    np.testing.assert_array_equal(ids, [*data["input_ids"][2:4, 2], *data["input_ids"][2:4, 0]])
    np.testing.assert_array_equal(mask, [*data["attention_mask"][2:4, 2], *data["attention_mask"][2:4, 0]])
    whole = dropout_keys(3, 5, np.arange(BATCH), [1, 4])
    assert (rows.keys([1, 4]) == whole[:, 2:4]).all()
    assert rows.most_tokens([2, 0]) == 16
    assert dataclasses.replace(rows, column_tokens=()).most_tokens([2, 0]) is None


def test_a_column_s_masked_tokens_are_its_own_whatever_other_columns_are_read():
    rows = Rows(batch(3), jnp.int32(0), settings(), masking=Masking(3, (0, 1, 2, 3)), words=40)
    shown, selected = rows.masked([0, 2])
    alone, chosen = rows.masked([2])
    np.testing.assert_array_equal(shown[8:], alone)
    np.testing.assert_array_equal(selected[8:], chosen)
    assert 0.05 < selected.sum() / batch(3)["attention_mask"][:, [0, 2]].sum() < 0.3
    assert column_number(MASKING, 2) == MASKING + 2
