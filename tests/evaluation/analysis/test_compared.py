import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis.compared import Models, choose


def test_a_base_stands_before_its_model_and_pairs_before_the_others():
    found = choose(["m/alone", "m/A=tuned"], [["tuned", "m/a"], ["m/B", "m/b=before"]])
    assert found == Models(
        {"a": "m/a", "tuned": "m/A", "before": "m/b", "B": "m/B", "alone": "m/alone"},
        [("tuned", "a"), ("B", "before")],
    )
    shared = choose([], [["A", "base"], ["B", "base"], ["C", "B"]])
    assert list(shared.names) == ["base", "A", "B", "C"]
    assert shared.pairs == [("A", "base"), ("B", "base"), ("C", "B")]


def test_models_of_one_name_are_distinguished():
    assert list(choose(["runs/a/model", "runs/b/model"], []).names) == ["a/model", "b/model"]


@pytest.mark.parametrize(
    ("models", "pairs", "message"),
    [
        (["a", "a"], [], "--models: a is given twice"),
        (["a=x", "b=x"], [], "two models have the label x"),
        (["m/a", "b=a"], [], "two models have the label a"),
        ([], [["a", "a=again"]], "--pair a a: is a model and itself"),
        ([], [["a", "b"], ["a", "b"]], "--pair a b: is given twice"),
    ],
)
def test_what_is_the_same_is_refused(models, pairs, message):
    with pytest.raises(UserError, match=message):
        choose(models, pairs)
