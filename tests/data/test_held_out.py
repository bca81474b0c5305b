import numpy as np

from simcse_jax.data.held_out import connected, hold_out, in_folds

ROWS = 400
# Every third row shares its anchor with the row before it, but for spaces and case.
ANCHORS = [f"Anchor {row - (row % 3 == 1)}" if row % 2 else f"anchor  {row - (row % 3 == 1)} " for row in range(ROWS)]
POSITIVES = [f"positive {row}" for row in range(ROWS)]


def test_rows_with_a_text_in_common_are_one_group_of_one_part_which_the_seed_draws():
    groups = connected((["a", "b", "c", "d", "e"], ["x", "A ", "y", "", " B  "]))
    assert groups[0] == groups[1] == groups[4] and len(set(groups.tolist())) == 3
    split = hold_out((ANCHORS, POSITIVES), 100, seed=1)
    assert sorted(np.concatenate(split[:3]).tolist()) == list(range(ROWS))
    assert len(split.rest) == 300 and {len(split.development), len(split.test)} == {50}
    texts = [{" ".join(ANCHORS[row].lower().split()) for row in part} for part in split[:3]]
    assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]
    first, again, other = (hold_out((ANCHORS, POSITIVES), 60, seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first, again)) and not np.array_equal(first.test, other.test)
    answers = ["yes"] * 300 + [f"because of {row}" for row in range(100)]
    split = hold_out((POSITIVES, answers), 40, seed=0)
    assert min(split.development) >= 300 and min(split.test) >= 300 and len(split.rest) == 360


def test_folds_share_no_text_and_have_much_the_same_size():
    fold, groups = in_folds((ANCHORS, POSITIVES), 5, seed=1)
    assert np.array_equal(groups, connected((ANCHORS, POSITIVES)))
    assert [len({*fold[groups == group].tolist()}) for group in range(groups.max() + 1)] == [1] * (groups.max() + 1)
    assert np.ptp(np.bincount(fold)) <= 1 and len(np.bincount(fold)) == 5
    assert np.array_equal(fold, in_folds((ANCHORS, POSITIVES), 5, seed=1)[0])
    assert not np.array_equal(fold, in_folds((ANCHORS, POSITIVES), 5, seed=2)[0])
    answers = ["yes"] * 300 + [f"because of {row}" for row in range(100)]  # most of them one group
    assert np.bincount(in_folds((POSITIVES, answers), 5, seed=0)[0], minlength=5).tolist().count(25) == 4
