import dataclasses

import numpy as np
import pytest
from support.checks import cosine, random
from support.steps import alone

from simcse_jax.objectives.candidates import candidate_scores, score_candidates


@pytest.mark.parametrize(("similarity", "score"), [("dot", np.dot), ("cosine", cosine)])
def test_scores_are_of_an_anchor_s_own_candidates(similarity, score):
    anchors, candidates = random(4, 5), random(3, 4, 5, seed=1)
    expected = [[score(a, b) for a, b in zip(anchors, kind, strict=True)] for kind in candidates]
    np.testing.assert_allclose(candidate_scores(anchors, candidates, similarity), expected, rtol=1e-5, atol=1e-6)


def test_of_a_batch_the_positive_comes_first():
    views, teacher, there = random(4, 3, 5), random(4, 3, 2, seed=1), random(4, 3, seed=2) > 0

    def named(rows):
        return {"anchor": rows[1], "positive": rows[0], "hard_negatives": rows[[3, 2]]}

    batch = alone(named(views), teacher=named(teacher))
    student, taught, present = score_candidates(dataclasses.replace(batch, present=named(there)), "dot")
    for found, x in ((student, views), (taught, teacher)):
        np.testing.assert_allclose(found, np.sum(x[1] * x[[0, 3, 2]], axis=-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(present, there[[0, 3, 2]])
    assert score_candidates(batch, "dot")[2] is None
