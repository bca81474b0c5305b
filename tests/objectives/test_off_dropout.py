import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives import off_dropout as module
from simcse_jax.objectives import similarity
from simcse_jax.objectives.negatives import Candidates

off_dropout = jax.jit(module.off_dropout, static_argnames="reading")
SOME = np.array([[True, False, True, False], [False, False, True, True]])


def by_the_equation(z1, z2, z, positives, kinds, temperature, m, reading="paper"):
    """SimCSE++, equation 3 or its authors' code, with hard negatives, term by term."""

    def s(a, b):
        return cosine(a, b) / temperature

    losses = []
    for i in range(len(z1)):
        negatives = sum(np.exp(s(z[i], positives[j])) for j in range(len(z)) if j != i)
        negatives += sum(np.exp(s(z[i], negative)) for kind in kinds for negative in kind)
        positive = np.exp(s(z1[i], z2[i]) * (m if reading == "released" else 1))
        losses.append(-np.log(positive / (positive + negatives * (m if reading == "paper" else 1))))
    return np.array(losses)


@pytest.mark.parametrize(
    ("reading", "m", "present", "temperature", "most"),
    [
        ("paper", 0.5, None, 1.0, 2**22),
        ("paper", 1.2, np.ones_like(SOME), 0.3, 24),  # of 4 × 12 similarities: two rows at a time
        ("released", 0.9, np.ones((1, 4), bool), 0.3, 2**22),
        ("paper", 0.9, SOME, 0.5, 2**22),
    ],
)
def test_value_and_gradient_are_equation_3_s(reading, m, present, temperature, most, monkeypatch):
    """Also with negatives that are not there, which are no terms of the sums, and some rows at a time."""
    monkeypatch.setattr(similarity, "SIMILARITIES", most)
    there = None if present is None or present.all() else Candidates(np.concatenate([np.ones((1, 4), bool), present]))
    weights = np.float32([1, -2, 3, 1])

    def ours(x):
        kinds = None if present is None else x[4] if len(present) == 1 else x[4:]
        fields = {"temperature": temperature, "m": m, "reading": reading, "candidates": there}
        return jnp.sum(weights * module.off_dropout(*x[:4], kinds, jnp.arange(4), **fields))

    def equation(x):
        kinds = [] if present is None else [kind[mask] for kind, mask in zip(x[4:], present, strict=True)]
        return weights @ by_the_equation(*x[:4], kinds, temperature, m, reading)

    assert_is_equation(ours, equation, random(4 + (0 if present is None else len(present)), 4, 3))


def test_without_negatives_loss_and_gradient_are_zero_and_large_similarities_do_not_overflow():
    def total(x, m, temperature):
        return jnp.sum(module.off_dropout(*x[:4], x[4], jnp.arange(3), temperature=temperature, m=m))

    compute = jax.jit(jax.value_and_grad(total))
    loss, gradient = compute(random(5, 3, 2), 0.0, 0.05)
    assert loss == 0 and np.all(np.asarray(gradient) == 0)
    loss, gradient = compute(random(5, 3, 2), 0.9, 0.001)
    assert np.isfinite(loss) and loss > 100 and np.isfinite(gradient).all()
