import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives.ranking_distillation import ranking_distillation

ROWS, TEACHER, TAU, TAU_T = random(2, 5, 3), random(2, 5, 4, seed=1), 0.1, 0.2
CASES = [(method, reading) for method in ("listmle", "listnet") for reading in ("paper", "released")]


def similarities(rows):
    return np.array([[cosine(row, column) for column in rows[1]] for row in rows[0]])


def softmax(row):
    return np.exp(row) / np.exp(row).sum()


def equation(rows, method, reading, teacher=TEACHER):
    """Item by item, as the papers of the two losses have them."""
    found, released = 0.0, reading == "released"
    for number, (scores, taught) in enumerate(zip(similarities(rows) / TAU, similarities(teacher), strict=True)):
        if method == "listnet":
            kept = [place for place in range(len(scores)) if not (released and place == number)]
            found -= softmax(taught[kept] / TAU_T) @ np.log(softmax(scores[kept]))
            continue
        left, shares = list(np.argsort(-taught)), np.exp(scores - scores.max())
        while left:
            found -= np.log(shares[left[0]] / (shares[left].sum() + 1e-7 * released))
            left = left[1:]
    return found / len(rows[0])


def loss(rows, method="listmle", reading="paper", teacher=TEACHER, temperature=TAU):
    losses = ranking_distillation(
        *rows, *teacher, np.arange(len(rows[0])),
        temperature=temperature, teacher_temperature=TAU_T, method=method, reading=reading,
    )  # fmt: skip
    return jnp.mean(losses)


@pytest.mark.parametrize(("method", "reading"), CASES)
def test_value_and_gradient_are_the_equation_s(method, reading):
    assert_is_equation(lambda rows: loss(rows, method, reading), lambda rows: equation(rows, method, reading), ROWS)


def test_lists_that_are_far_apart_have_finite_gradients_and_a_floor_as_released():
    """Opposite embeddings at τ = 0.01: e^-200 is 0 in float32, and its logarithm still counts."""
    rows = np.stack([np.array([[1, 0], [-1, 0]], np.float32)] * 2)
    both = jax.value_and_grad(lambda rows, *of: loss(rows, "listmle", *of, temperature=0.01))
    both = jax.jit(both, static_argnums=1)
    for order, reading, expected in (  # the same as the teacher's, or the opposite one
        (1, "paper", 0.0),
        (1, "released", 200 + np.log(1e-7)),
        (-1, "paper", 200.0),
        (-1, "released", 200.0),
    ):
        teacher = rows * np.array([order, 1], np.float32)[:, None, None]
        value, gradient = both(rows, reading, teacher)
        assert float(value) == pytest.approx(expected, rel=1e-5, abs=1e-5), (order, reading)
        assert np.isfinite(gradient).all()


def test_of_sentences_that_the_teacher_finds_equal_the_first_row_comes_first():
    teacher = np.ones((2, 4, 2), np.float32)
    rows = random(2, 4, 3)
    falling = np.array([[[1, 1]] * 4, [[1, 1], [2, 1], [3, 1], [4, 1]]], np.float32)  # 1, 0.95, 0.89, 0.86
    equal, ordered = (jax.jit(lambda teacher: loss(rows, teacher=teacher))(x) for x in (teacher, falling))
    assert float(equal) == pytest.approx(float(ordered), rel=1e-6)
