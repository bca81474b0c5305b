import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.steps import alone

from simcse_jax.errors import UserError

VIEWS = {"anchor": random(4, 3), "positive": random(4, 3, seed=1), "hard_negatives": random(2, 4, 3, seed=2)}


def embedded():
    """Two devices with four examples each; the other device has the same views in reverse."""
    return alone(VIEWS, gather=lambda x: jnp.concatenate([x, x[:, ::-1]], axis=1), psum=lambda x: 2 * x)


def test_views_are_found_by_name():
    anchors, positives = embedded().pair
    np.testing.assert_array_equal(anchors, VIEWS["anchor"])
    np.testing.assert_array_equal(positives, embedded()["positive"])
    stacked = embedded().stacked("positive", "hard_negatives", "none")
    np.testing.assert_array_equal(stacked, [VIEWS["positive"], *VIEWS["hard_negatives"]])
    assert embedded().truncated(2)["hard_negatives"].shape == (2, 4, 2)
    with pytest.raises(UserError, match=r"the view 'anchors'; it asked for anchor, positive, hard_negatives$"):
        embedded()["anchors"]


def test_one_view_and_several_come_from_all_devices_and_so_does_the_mean():
    positives, hard_negatives = embedded().everywhere("positive", "hard_negatives")
    np.testing.assert_array_equal(positives, [*VIEWS["positive"], *VIEWS["positive"][::-1]])
    last = VIEWS["hard_negatives"][1]
    np.testing.assert_array_equal(hard_negatives[1], [*last, *last[::-1]])
    assert hard_negatives.shape == (2, 8, 3)
    assert embedded().everywhere("positive", "none")[1] is None
    assert float(embedded().mean(jnp.array([1.0, 2.0, 3.0, 6.0]))) == 3.0  # 24 of 8


def test_sentences_that_the_data_lack_are_told_by_the_names_of_their_views():
    assert embedded().present_in("positive") is None and embedded().candidates("positive", "hard_negatives") is None
    there = {"anchor": np.ones(4, bool), "hard_negatives": random(2, 4) > 0}
    seen = dataclasses.replace(embedded(), present=there)
    assert seen.present_in("anchor", "hard_negatives").shape == (3, 4)
    found = dataclasses.replace(seen, present=there | {"positive": ~there["anchor"]})
    there = found.candidates("positive", "hard_negatives").present
    assert there.shape == (3, 8) and there[0].all() and not there.all()  # all rows have a positive
    assert found.candidates("anchor", pair=("positive", "anchor")) is None
