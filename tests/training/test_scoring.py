"""Which of a run's encoders stands for its model; whole runs are in `test_objectives` and `test_analysis`."""

from types import SimpleNamespace

import pytest

from simcse_jax.training.scoring import choose


def setup(*scores):
    """A run whose encoders have these scores."""
    found = dict(enumerate(scores))
    return SimpleNamespace(
        embed=SimpleNamespace(with_params=lambda params: params),
        judge=SimpleNamespace(with_params=lambda params: params),
        model=lambda params, tower: tower,
        towers=range(len(scores)),
        scoring=[lambda model: {"eval/dev": found[model.embedder], "eval/other": -found[model.embedder]}],
    )


@pytest.mark.parametrize(("scores", "tower"), [((1.0, 2.0), 1), ((2.0, 1.0), 0), ((2.0, 2.0), 0)])
def test_of_two_encoders_the_one_with_the_better_first_score_is_chosen_and_noted(scores, tower):
    chosen = choose(setup(*scores), {}, score=True)
    assert (chosen.model.embedder, chosen.tower, chosen.which) == (tower, tower, {"second_encoder": tower})
    assert chosen.scores == {"eval/dev": scores[tower], "eval/other": -scores[tower]}


def test_without_a_score_the_first_encoder_is_taken_and_one_alone_is_not_noted():
    chosen = choose(setup(1.0, 2.0), {}, score=False)
    assert (chosen.tower, chosen.scores, chosen.which) == (0, {}, {"second_encoder": 0})
    assert choose(setup(3.0), {}, score=True)[1:] == (0, {"eval/dev": 3.0, "eval/other": -3.0}, {})
