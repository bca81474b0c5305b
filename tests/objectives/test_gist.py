import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives import similarity
from simcse_jax.objectives.gist import gist
from simcse_jax.objectives.negatives import Candidates

USUAL = {"temperature": 0.1, "margin": 0.0, "margin_kind": "absolute"}


def near(views, rows, size, seed):
    """A guide's embeddings: positives near their anchors, some of the others nearer."""
    found = random(views, rows, size, seed=seed)
    found[1] = found[0] + 0.8 * found[1]
    found[:, 1] = found[:, 0] + 0.3 * found[:, 1]  # a false negative
    return found


def loss(rows, guide, **fields):
    rows, guide = jnp.asarray(rows), jnp.asarray(guide)
    return jnp.mean(gist(rows, rows, guide, guide, jnp.arange(rows.shape[1]), **(USUAL | fields)))


def equation(
    rows, guide, temperature=0.1, margin=0.0, margin_kind="absolute", contrast_anchors=True, contrast_positives=True
):
    """One candidate at a time; the guide's cosine with each decides about it."""
    guided, losses, kinds = np.float64(guide), [], range(2, len(rows))
    contrasts = [(0, 1), *[(0, 0)] * contrast_anchors, *[(1, 1)] * contrast_positives]
    for i in range(rows.shape[1]):
        near = cosine(guided[0, i], guided[1, i])
        threshold = near - margin * (abs(near) if margin_kind == "relative" else 1)
        terms = [cosine(rows[0, i], rows[1, i])]
        for j in range(rows.shape[1]):
            for side, kind in [*(contrasts if j != i else []), *((0, kind) for kind in kinds)]:
                if cosine(guided[side, i], guided[kind, j]) <= threshold:
                    terms.append(cosine(rows[side, i], rows[kind, j]))
        losses.append(np.log(np.sum(np.exp(np.array(terms) / temperature))) - terms[0] / temperature)
    return np.mean(losses)


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"margin": 0.1}, 2**22),
        ({"margin": 0.3, "margin_kind": "relative", "contrast_anchors": False}, 2**22),
        ({"margin": 0.1, "contrast_positives": False}, 30),  # of 4 × 12 similarities: two rows at a time
    ],
)
def test_value_and_gradient_are_the_equation_s_also_in_parts_of_the_rows(fields, most, monkeypatch):
    """And a larger margin leaves out more."""
    monkeypatch.setattr(similarity, "SIMILARITIES", most)
    rows, guide, fields = random(3, 4, 3), near(3, 4, 5, 1), {"temperature": 0.3} | fields
    assert_is_equation(lambda rows: loss(rows, guide, **fields), lambda rows: equation(rows, guide, **fields), rows)
    assert equation(np.float64(rows), guide, **fields) > equation(np.float64(rows), guide, **fields | {"margin": 0.6})


def test_a_pair_that_is_equal_to_the_guide_is_no_negative_of_itself():
    rows, guide = random(2, 2, 4), np.stack([np.eye(2, 4)] * 2).astype(np.float32)
    rows, guide = np.concatenate([rows, -rows[:1]]), np.concatenate([guide, -guide[:1]])
    assert_is_equation(lambda rows: loss(rows, guide), lambda rows: equation(rows, guide), rows)


def test_negatives_that_are_not_there_are_no_terms():
    rows, guide = random(4, 4, 3), near(4, 4, 5, 1)
    last_nowhere = Candidates(np.arange(4)[:, None] < np.full(4, 3))
    assert_is_equation(
        lambda rows: loss(rows, guide, exclusions=last_nowhere), lambda rows: equation(rows[:3], guide[:3]), rows
    )
    assert equation(np.float64(rows), guide) > equation(np.float64(rows[:3]), guide[:3])
