import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from support.steps import BATCH, batch, settings

from simcse_jax.training.rows import Rows
from simcse_jax.training.views import dropout_keys

pytestmark = pytest.mark.exact


def test_rows_give_their_columns_one_below_the_other_and_a_key_to_each_number():
    data = batch(3)
    rows = Rows({name: x[2:4] for name, x in data.items()}, jnp.int32(5), settings(), (7, 8, 9))
    ids, mask = rows.tokens([2, 0])
    np.testing.assert_array_equal(ids, [*data["input_ids"][2:4, 2], *data["input_ids"][2:4, 0]])
    np.testing.assert_array_equal(mask, [*data["attention_mask"][2:4, 2], *data["attention_mask"][2:4, 0]])
    whole = dropout_keys(3, 5, np.arange(BATCH), [1, 4])
    assert (rows.keys([1, 4]) == whole[:, 2:4]).all()
    assert rows.most_tokens([2, 0]) == 16
    assert dataclasses.replace(rows, column_tokens=()).most_tokens([2, 0]) is None
