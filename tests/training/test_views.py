import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.objectives.views import Pass, Plan, View, each_of
from simcse_jax.training.views import embed

pytestmark = [pytest.mark.exact, pytest.mark.optimized]


def test_embeddings_are_encoded_once_averaged_and_made_noisy():
    calls = []

    def encode(each, columns, masks, changes):
        calls.append((each, columns, masks, changes))
        sums = [100.0 * each.tower + 10 * c + (m if each.masked else 0.5) for c, m in zip(columns, masks, strict=True)]
        return jnp.array([[[number] * 3] * 2 for number in sums])

    views = [View(0, (1,)), View(1, (2, 4)), View(0, (1,), noise=7), View(0, ()), View(1, (1,), tower=1)]
    found = embed(views, encode, lambda number, shape: jnp.full(shape, 1000.0 * number))
    np.testing.assert_array_equal(found[:, 0, 0], [1.0, 13.0, 7001.0, 0.5, 111.0])
    assert found.shape == (5, 2, 3)
    assert calls == [
        (Pass(), [0, 1, 1], [1, 2, 4], [0, 0, 0]),
        (Pass(masked=False), [0], [0], [0]),
        (Pass(1), [1], [1], [0]),
    ]


def test_other_changes_and_rates_are_encoded_apart():
    calls = []

    def encode(each, columns, masks, changes):
        calls.append((each, columns, masks, changes))
        return jnp.arange(len(columns) * 6.0).reshape(-1, 2, 3) + 100 * len(calls)

    views = [View(0, ()), View(0, (), change="cutoff"), View(0, (), change="cutoff", changed=1)]
    views += [View(0, (1,), change="cutoff"), View(0, (1,), change="cutoff", rate="positive_dropout"), views[1]]
    found = embed(views, encode, None)
    np.testing.assert_array_equal(found[:, 0, 0], [100, 200, 206, 300, 400, 200])
    assert calls == [
        (Pass(masked=False), [0], [0], [0]),
        (Pass(masked=False, change="cutoff"), [0, 0], [0, 0], [0, 1]),
        (Pass(change="cutoff"), [0], [1], [0]),
        (Pass(change="cutoff", rate="positive_dropout"), [0], [1], [0]),
    ]


def test_the_mean_of_several_columns_is_one_positive_with_masks_of_its_own():
    views = each_of(Plan(4, "independent", positives=3).pair())
    assert len(views) == 2 and views[1].others == (2, 3)
    encoded = []

    def encode(each, columns, masks, changes):
        encoded.extend(zip(columns, masks, strict=True))
        return jnp.array(columns, jnp.float32)[:, None, None] * jnp.ones((1, 2, 3))

    found = embed(views, encode, None)
    assert found[:, 0, 0].tolist() == [0.0, 2.0]
    assert [column for column, _ in encoded] == [0, 1, 2, 3] and len({mask for _, mask in encoded}) == 4
    assert Plan(2, "independent", positives=1).pair() == Plan(2, "independent").pair()
    anchor, positive = each_of(Plan(3, "mean", positives=2, samples=5).pair())
    assert len(anchor.draws) == 5 and len(set(positive.draws)) == 10
