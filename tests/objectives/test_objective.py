import jax.numpy as jnp
import numpy as np
from support.checks import random

from simcse_jax.objectives.objective import Embedded, Group

VIEWS = random(5, 4, 3)
PAIR = Group(0, 1, ())


def embedded(positive=PAIR, negative=PAIR):
    """Two devices with four examples each; the other device has the same views in reverse."""
    return Embedded(
        views=jnp.asarray(VIEWS),
        positive=positive,
        negative=negative,
        own=jnp.arange(4),
        gather=lambda x: jnp.concatenate([x, x[:, ::-1]], axis=1),
        psum=lambda x: 2 * x,
        artificial=lambda count, size: jnp.zeros((count, size)),
        params={},
    )


def test_the_pair_is_that_of_the_positive_group():
    anchors, positives = embedded(Group(2, 4, ()), PAIR).pair
    np.testing.assert_array_equal(anchors, VIEWS[2])
    np.testing.assert_array_equal(positives, VIEWS[4])


def test_a_group_s_positives_and_negatives_come_from_all_devices():
    positives, hard_negatives = embedded().others(Group(0, 1, (3, 2)))
    np.testing.assert_array_equal(positives, [*VIEWS[1], *VIEWS[1][::-1]])
    np.testing.assert_array_equal(hard_negatives[1], [*VIEWS[2], *VIEWS[2][::-1]])
    assert hard_negatives.shape == (2, 8, 3)
    assert embedded().others(PAIR)[1] is None


def test_the_mean_is_over_all_devices():
    assert float(embedded().mean(jnp.array([1.0, 2.0, 3.0, 6.0]))) == 3.0  # 24 of 8
