from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.errors import UserError
from simcse_jax.objectives import info_nce as module
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.objective import Columns

USUAL = {"temperature": 0.5, "hard_negative_weight": 1.0, "similarity": "cosine", "symmetric": False}


def of_views(rows, **fields):
    """The objective's mean on a single device that has the whole batch."""
    return module.InfoNCE().loss(alone(named(rows)), **USUAL | fields)


def by_the_equation(anchors, positives, kinds, fields, alpha=1.0, present=None):
    """SimCSE, equation 8; `kinds` of negatives, of which the own one has the weight α, and some may be missing."""
    if fields["similarity"] == "cosine":
        anchors, positives, *kinds = (
            np.float64(x) / np.linalg.norm(x, axis=1, keepdims=True) for x in (anchors, positives, *kinds)
        )
    terms = [np.exp(anchors @ positives.T / fields["temperature"])]
    for number, kind in enumerate(kinds):
        there = 1 if present is None else present[number]
        own = np.where(np.eye(len(anchors), dtype=bool), alpha, 1)
        terms.append(own * there * np.exp(anchors @ kind.T / fields["temperature"]))
    return np.log(np.sum(terms, axis=(0, 2)) / np.diag(terms[0]))


@pytest.mark.parametrize(
    ("views", "fields"),
    [
        (2, {"temperature": 0.05}),
        (3, {"hard_negative_weight": 2.0, "similarity": "dot"}),
        (4, {"hard_negative_weight": 0.5, "symmetric": True}),
        (3, {"negatives": "positives"}),
        (3, {"negatives": "positives", "symmetric": True, "similarity": "dot"}),
        (2, {"negatives": "both"}),
        (2, {"negatives": "both", "symmetric": True, "temperature": 0.1}),
    ],
)
def test_value_and_gradient_are_equation_8_s(views, fields, monkeypatch):
    """Symmetric, also of positives that find anchors; negatives of both views are the own view's others too.

    That one, symmetric and with the weight 0.3, is ConSERT's loss. Two kinds of negatives are computed in parts.
    """
    monkeypatch.setattr("simcse_jax.objectives.similarity.SIMILARITIES", 30 if views == 4 else 2**22)
    chosen, negatives = USUAL | fields, fields.get("negatives")

    def equation(rows):
        anchors, positives, *kinds = rows
        of_anchors = {"both": ([anchors], 0.0), "positives": ([], 1.0), None: (kinds, chosen["hard_negative_weight"])}
        own, alpha = of_anchors[negatives]
        forward = by_the_equation(anchors, positives, own, chosen, alpha)
        if not chosen["symmetric"]:
            return np.mean(forward)
        backward = by_the_equation(positives, anchors, [positives] if negatives == "both" else [], chosen, 0.0)
        return np.mean(forward + backward) / 2

    assert_is_equation(lambda rows: of_views(rows, **fields), equation, random(views, 5, 3))


def term_by_term(rows, fields, weights_of):
    """All terms of each anchor's sum one at a time; factors of hardness are of other rows, as they have no gradient."""
    (anchors, positives, *hard), fixed = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (rows, weights_of))
    count, losses = len(anchors), []
    tau, negatives, weighted = fields["temperature"], fields.get("negatives", "other"), fields.get("weighted", "all")
    for i in range(count):
        terms = [(0, 1, j) for j in range(count) if j != i]  # whose row, and which one is compared with it
        terms += [(0, 0, j) for j in range(count) if j != i] if negatives != "other" else []
        terms += [(0, kind, j) for kind in range(2, len(rows)) for j in range(count)]
        terms += [(1, k, j) for k in range(1, len(rows)) for j in range(count) if j != i] if negatives == "all" else []
        near, total = anchors[i] @ positives[i], np.exp(anchors[i] @ positives[i] / tau)
        for side, kind, j in terms:
            similarity = [anchors, positives][side][i] @ [anchors, positives, *hard][kind][j]
            if 0 <= fields.get("margin", -1.0) < similarity - near:
                continue
            counts = weighted in ("all", "own" if i == j else "others")
            factor = np.exp(fields.get("hardness", 0.0) * (fixed[side, i] @ fixed[kind, j])) if counts else 1.0
            own = fields.get("hard_negative_weight", 1.0) if i == j else 1.0
            total += own * factor * np.exp(similarity / tau)
        losses.append(np.log(total) - near / tau)
    return np.mean(losses)


@pytest.mark.parametrize(
    ("views", "fields"),
    [
        (2, {"margin": 0.1}),
        (4, {"margin": 0.0, "hard_negative_weight": 2.0}),
        (4, {"hardness": 5.0, "weighted": "own", "hard_negative_weight": 2.0}),
        (3, {"hardness": 3.0, "weighted": "others"}),
        (4, {"negatives": "both", "hard_negative_weight": 2.0}),
        (2, {"negatives": "all", "hardness": 2.0}),
        (4, {"negatives": "all", "margin": 0.1, "hardness": 3.0, "hard_negative_weight": 0.5}),
    ],
)
def test_false_negatives_hardness_and_all_negatives_are_their_equations(views, fields, monkeypatch):
    """Also some rows at a time."""
    rows, fields = random(views, 5, 3), {"temperature": 0.3} | fields
    expected = term_by_term(np.float64(rows), fields, np.float64(rows))
    plain = {name: x for name, x in fields.items() if name not in ("margin", "hardness")}
    assert abs(expected - term_by_term(np.float64(rows), plain, np.float64(rows))) > (0.01 if plain != fields else -1)
    monkeypatch.setattr("simcse_jax.objectives.similarity.SIMILARITIES", 30)
    assert_is_equation(
        lambda rows: of_views(rows, **fields),
        lambda rows: term_by_term(rows, fields, np.float64(random(views, 5, 3))),
        rows,
    )


def test_with_all_negatives_equal_texts_are_left_out_of_the_documents_too():
    rows, texts = jnp.asarray(random(3, 4, 3)), np.arange(12).reshape(3, 4)
    texts[1, 2] = texts[1, 0]  # the third row has the positive of the first one
    fields = USUAL | {"negatives": "all"}
    found = module.InfoNCE().loss(alone(named(rows), texts=named(jnp.asarray(texts))), **fields)
    x, losses = np.float64(rows) / np.linalg.norm(rows, axis=-1, keepdims=True), []
    for i in range(4):
        terms = [(0, k, j) for k in range(3) for j in range(4) if k == 2 or j != i or k == 1]
        terms += [(1, k, j) for k in (1, 2) for j in range(4) if j != i]
        kept = [(s, k, j) for s, k, j in terms if not (k == 1 and {i, j} == {0, 2})]
        losses.append(np.log(sum(np.exp(x[s, i] @ x[k, j] / 0.5) for s, k, j in kept)) - x[0, i] @ x[1, i] / 0.5)
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


PRESENT = np.array([[True, False, True, False, False, True], [True, False, True, True, False, False]])  # of two kinds


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_negatives_that_are_not_there_are_no_terms_of_the_sums(alpha):
    """Nor an anchor's own ones with a weight of zero."""
    anchors, positives, *kinds = random(4, 6, 5)
    kinds = np.stack(kinds)

    @jax.jit
    @jax.value_and_grad
    def compute(kinds, present):
        there = Candidates(jnp.concatenate([jnp.ones((1, 6), bool), present]))
        fields = {"temperature": 0.05, "hard_negative_weight": alpha, "candidates": there}
        return jnp.sum(module.info_nce(anchors, positives, kinds, np.arange(6), **fields))

    for present in (PRESENT, np.ones_like(PRESENT), np.zeros_like(PRESENT)):
        value, found = compute(kinds, present)
        expected = by_the_equation(anchors, positives, kinds, USUAL | {"temperature": 0.05}, alpha, present)
        np.testing.assert_allclose(value, expected.sum(), rtol=1e-4)
        assert np.isfinite(found).all() and not np.any(found[~present])
        assert np.any(found[present]) == present.any()


def test_a_zero_embedding_has_a_finite_gradient():
    def total(x):
        return jnp.sum(module.info_nce(x, x, None, jnp.arange(2), temperature=0.05))

    assert np.all(np.isfinite(jax.jit(jax.grad(total))(jnp.array([[0.0, 0.0], [1.0, 2.0]]))))


def test_a_hardness_of_hard_negatives_needs_some():
    fields = SimpleNamespace(hardness=5.0, weighted="own", negatives="other")
    module.InfoNCE().check_columns(fields, Columns("a.csv", 3, 3, 3))
    fields.hardness, two = 0.0, Columns("a.csv", 2, 2, 2)
    module.InfoNCE().check_columns(fields, two)
    fields.hardness = 5.0
    with pytest.raises(UserError, match=r"info_nce\.weighted=own: a\.csv has no hard negatives"):
        module.InfoNCE().check_columns(fields, two)
