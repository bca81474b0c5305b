import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.objectives import similarity
from simcse_jax.objectives.supcon import SupCon

CLASSES = np.int32([0, 2, 0, 0, 1, 2])  # class 1 has one sentence, whose views have each other


def by_the_equation(rows, temperature):
    """Khosla et al.'s equation 2 for each of the 2N views in turn."""
    views, classes = np.concatenate(rows), np.tile(CLASSES, 2)
    losses = []
    for i, view in enumerate(views):
        others = [a for a in range(len(views)) if a != i]
        exponents = {a: cosine(view, views[a]) / temperature for a in others}
        total = sum(np.exp(exponent) for exponent in exponents.values())
        positives = [a for a in others if classes[a] == classes[i]]
        losses.append(-np.mean([np.log(np.exp(exponents[p]) / total) for p in positives]))
    return np.mean(losses)


@pytest.mark.parametrize("most", [2**22, 24])  # of 6 × 12 similarities: all at once, or two rows at a time
def test_value_and_gradient_are_the_equation_s_also_in_parts_of_the_rows(most, monkeypatch):
    monkeypatch.setattr(similarity, "SIMILARITIES", most)
    assert_is_equation(
        lambda rows: SupCon().loss(alone(named(rows), label=CLASSES), temperature=0.5),
        lambda rows: by_the_equation(rows, 0.5),
        random(2, 6, 3),
    )
