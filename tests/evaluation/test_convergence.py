import numpy as np
import pytest
from support.pictures import texts

from simcse_jax.evaluation.convergence import convergence, curve

ONE = {0: 90.0, 10: 70.0, 20: 80.0, 30: 80.0}
OTHER = {0: 90.0, 10: 74.0, 20: 76.0, 30: 84.0, 40: 60.0}


def test_seeds_have_a_mean_a_band_and_their_best_steps_which_the_picture_says():
    found = curve([ONE, OTHER])
    assert found.steps.tolist() == [0, 10, 20, 30]
    assert found.mean.tolist() == [90, 72, 78, 82]
    assert found.deviation == pytest.approx([0, *np.std([[70, 80, 80], [74, 76, 84]], axis=0, ddof=1)])
    assert (found.best_steps, found.best_scores) == ([20, 30], [80.0, 84.0])
    said = "best score 82.00 ± 2.83 at steps 20, 30, 25 on average, of runs with scores up to steps 30, 40"
    assert str(found) == said
    assert str(curve([ONE, ONE])) == "best score 80.00 ± 0.00 at steps 20, 20, 20 on average"
    assert found.to_json()["best_steps"] == [20, 30] and found.to_json()["deviation"][1] == pytest.approx(2.8284)
    assert (curve([ONE]).best_steps, curve([ONE]).best_scores) == ([20], [80.0])
    assert str(curve([ONE])) == "best score 80.00 at step 20"
    assert curve([{0: 50.0}]).best_steps == [0]  # a run without steps
    there = texts(convergence({"SimCSE": curve([ONE, OTHER]), "no dropout": curve([OTHER])}, "stsb_dev")["svg"])
    assert {"SimCSE, 2 seeds: best 82.00 at step 25", "no dropout: best 84.00 at step 30"} <= set(there)
    assert any("Development score on stsb_dev" in text for text in there)
    other = convergence({"SimCSE": curve([ONE])}, "retrieval", "nDCG@10")
    assert other["png"].startswith(b"\x89PNG") and any("nDCG@10 × 100" in text for text in texts(other["svg"]))
