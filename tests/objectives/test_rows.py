import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.steps import BATCH, batch, settings

from simcse_jax.models.masking import Masking
from simcse_jax.objectives.rows import Rows, dropout_keys, embed_view, group_by_pass
from simcse_jax.objectives.views import MASKING, Pass, Plan, View, column_number, flatten_views

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


def test_embeddings_are_encoded_once_averaged_and_made_noisy_and_other_changes_and_rates_apart():
    views = [View(0, (1,)), View(1, (2, 4)), View(0, (1,), noise=7), View(0, ()), View(1, (1,), tower=1)]
    once = {Pass(): [(0, 1, 0), (1, 2, 0), (1, 4, 0)], Pass(dropout=False): [(0, 0, 0)], Pass(1): [(1, 1, 0)]}
    assert group_by_pass(views) == once
    encoded = {
        (one, draw): jnp.full((BATCH, 3), 100.0 * one.tower + 10 * draw.column + (draw.mask if one.dropout else 0.5))
        for one, draws in group_by_pass(views).items()
        for draw in draws
    }
    rows = Rows(batch(2), jnp.int32(0), settings(noise=4.0))
    found = jnp.stack([embed_view(rows, view, encoded) for view in views])
    assert found.shape == (5, BATCH, 3)
    np.testing.assert_array_equal(found[[0, 1, 3, 4], 0, 0], [1.0, 13.0, 0.5, 111.0])
    noise = found[2] - found[0]
    assert len(np.unique(noise)) == noise.size and 1 < np.std(noise) < 4
    views = [View(0, ()), View(0, (), change="cutoff"), View(0, (), change="cutoff", changed=1)]
    views += [View(0, (1,), change="cutoff"), View(0, (1,), change="cutoff", rate="positive_dropout"), views[1]]
    assert list(group_by_pass(views).items()) == [
        (Pass(dropout=False), [(0, 0, 0)]), (Pass(dropout=False, change="cutoff"), [(0, 0, 0), (0, 0, 1)]),
        (Pass(change="cutoff"), [(0, 1, 0)]), (Pass(change="cutoff", rate="positive_dropout"), [(0, 1, 0)]),
    ]  # fmt: skip


def test_the_mean_of_several_columns_is_one_positive_with_masks_of_its_own():
    views = flatten_views(Plan(4, "independent", positives=3).pair())
    assert len(views) == 2 and views[1].further_columns == (2, 3)
    ((one, draws),) = group_by_pass(views).items()
    encoded = {(one, draw): jnp.full((2, 3), float(draw.column)) for draw in draws}
    rows = Rows(batch(1), jnp.int32(0), settings())
    assert [float(embed_view(rows, view, encoded)[0, 0]) for view in views] == [0.0, 2.0]
    assert [draw.column for draw in draws] == [0, 1, 2, 3] and len({draw.mask for draw in draws}) == 4
    assert Plan(2, "independent", positives=1).pair() == Plan(2, "independent").pair()
    anchor, positive = flatten_views(Plan(3, "mean", positives=2, samples=5).pair())
    assert len(anchor.draws) == 5 and len(set(positive.draws)) == 10
