from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.registry import OBJECTIVES
from simcse_jax.objectives.views import Plan


def test_only_the_views_that_it_reads_are_encoded():
    plan = Plan(columns=3, positive="independent")
    assert set(Objective().views(plan)) == {"anchor", "positive", "hard_negatives"}
    for name in ("self_contrastive", "barlow_twins", "dimension_wise"):
        assert set(OBJECTIVES[name].views(plan)) == {"anchor", "positive"}
