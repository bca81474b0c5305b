import numpy as np

from simcse_jax.bulk.mining.selection import Choice, default_range_max, select

SCORES = np.float32([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
IS_POSITIVE = np.array([0, 1, 0, 0, 0, 0, 0], bool)


def test_limits_come_before_ranks_and_a_random_choice_is_of_seed_and_row():
    for choice, expected, left_out in (
        (Choice(3, 0, 7), [0, 2, 3], {}),
        (Choice(3, 2, 7), [3, 4, 5], {}),
        (Choice(3, 0, 2), [0, 2], {}),
        (Choice(7, 0, 7, max_score=0.7), [2, 3, 4, 5, 6], {"max_score": 1}),  # equal to it: kept
        (Choice(7, 0, 7, min_score=0.45), [0, 2, 3, 4], {"min_score": 2}),
        (Choice(7, 0, 7, absolute_margin=0.15), [3, 4, 5, 6], {"absolute_margin": 2}),
        (Choice(7, 0, 7, relative_margin=0.3), [4, 5, 6], {"relative_margin": 3}),
        (Choice(2, 1, 3, relative_margin=0.2, min_score=0.35), [4, 5], {"relative_margin": 2, "min_score": 1}),
        (Choice(3, 9, 12), [], {}),
    ):
        places, found = select(SCORES, 0.8, IS_POSITIVE, choice, 0)
        assert (places.tolist(), dict(found)) == (expected, left_out), choice
    scores = np.float32([-0.1, -0.2, -0.25, -0.3])
    places, _ = select(scores, -0.2, np.zeros(4, bool), Choice(4, 0, 4, relative_margin=0.25), 0)
    assert places.tolist() == [2, 3]

    def chosen(row, seed=1, num=3):
        return select(SCORES, 0.8, IS_POSITIVE, Choice(num, 0, 7, sampling="random", seed=seed), row).places.tolist()

    found = [chosen(row) for row in range(50)]
    assert found == [chosen(row) for row in range(50)] and len(set(map(tuple, found))) > 10
    assert all(sorted(set(places)) == places and 1 not in places and len(places) == 3 for places in found)
    assert {place for places in found for place in places} == {0, 2, 3, 4, 5, 6}
    assert found != [chosen(row, seed=2) for row in range(50)]
    assert chosen(0, num=9) == [0, 2, 3, 4, 5, 6]  # fewer than asked for: all
    # As in sentence-transformers.
    assert (default_range_max(3, 10, limited=False), default_range_max(3, 10, limited=True)) == (14, 41)
