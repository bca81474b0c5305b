import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.objectives.triplet import Triplet

DISTANCES = {"euclidean": lambda x, y: np.linalg.norm(x - y), "cosine": lambda x, y: 1 - cosine(x, y)}


def of_batch(rows, present=None, **fields):
    there = None if present is None else named(jnp.concatenate([jnp.ones((2, rows.shape[1]), bool), present]))
    return Triplet().loss(alone(named(rows), present=there), **{"margin": 0.5, "distance": "euclidean"} | fields)


def equation(rows, margin=0.5, distance="euclidean"):
    far = DISTANCES[distance]
    triples = [(*rows[:2, i], negative) for kind in rows[2:] for i, negative in enumerate(kind)]
    return np.mean([max(0, far(a, p) - far(a, n) + margin) for a, p, n in triples])


@pytest.mark.parametrize("distance", DISTANCES)
def test_value_and_gradient_are_the_equation_s(distance):
    chosen = {"distance": distance}
    assert_is_equation(lambda rows: of_batch(rows, **chosen), lambda rows: equation(rows, **chosen), random(4, 5, 4))


def test_negatives_that_rows_lack_count_for_nothing_and_equal_embeddings_have_a_finite_gradient():
    rows, present = random(4, 5, 4), np.array([[1, 1, 1, 1, 1], [1, 0, 0, 0, 1]], bool)
    rows[1, 0] = rows[0, 0]
    value, gradient = jax.jit(jax.value_and_grad(of_batch))(rows, present)
    own = [equation(rows[[0, 1, 2 + kind]][:, [row]]) for kind, row in np.argwhere(present)]
    assert float(value) == pytest.approx(np.mean(own), rel=1e-5)
    assert np.isfinite(gradient).all() and not np.any(gradient[3, 1:4])
