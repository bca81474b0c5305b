from types import SimpleNamespace

from simcse_jax.training.scoring import choose


def setup(*scores):
    found, embed = dict(enumerate(scores)), SimpleNamespace(with_params=lambda params: params)
    return SimpleNamespace(
        **{"embed": embed, "judge": embed, "model": lambda params, tower: tower},
        pairs=None,
        towers=range(len(scores)),
        scoring=[lambda model: {"eval/dev": found[model.embedder], "eval/other": -found[model.embedder]}],
    )


def test_of_two_encoders_the_one_with_the_better_first_score_is_chosen_and_noted():
    for scores, tower in (((1.0, 2.0), 1), ((2.0, 1.0), 0), ((2.0, 2.0), 0)):
        chosen = choose(setup(*scores), {}, score=True)
        assert (chosen.model.embedder, chosen.tower, chosen.which) == (tower, tower, {"second_encoder": tower})
        assert chosen.scores == {"eval/dev": scores[tower], "eval/other": -scores[tower]}
    # Without a score the first encoder is taken, and one alone is not noted.
    chosen = choose(setup(1.0, 2.0), {}, score=False)
    assert (chosen.tower, chosen.scores, chosen.which) == (0, {}, {"second_encoder": 0})
    assert choose(setup(3.0), {}, score=True)[1:] == (0, {"eval/dev": 3.0, "eval/other": -3.0}, {})
