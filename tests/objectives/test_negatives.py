"""Each objective that contrasts in the batch, against loops over the texts themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random
from support.steps import alone

from simcse_jax.data.equal_texts import numbered
from simcse_jax.objectives import similarity
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.registry import OBJECTIVES, load_loss, needing

# The same query twice, two queries with one answer, an answer that is a query; hard negatives that are positives of
# their own anchor, of another one, an anchor, and one that nothing equals.
ROWS = [
    *(("ask", "answer", "answer"), ("why", "so", "ask"), ("ask", "reply", "so")),
    *(("how", "so", "never"), ("when", "ask", "answer"), ("where", "here", "why")),
]
NUMBERS = numbered(ROWS)[0]
EMBEDDINGS = random(3, 6, 5)


def named(columns):
    views = dict(zip(("anchor", "positive"), columns, strict=False))
    views |= {"hard_negatives": jnp.stack(list(columns[2:]))} if len(columns) > 2 else {}
    return views | {f"clean_{name}": rows for name, rows in views.items()}


def of_batch(kinds=3, numbers=NUMBERS, **fields):
    texts = None if numbers is None else named(jnp.asarray(numbers).T[:kinds])
    return alone(named(jnp.asarray(EMBEDDINGS[:kinds])), texts=texts, **fields)


def loss(name, embedded, **fields):
    usual = {"info_nce": {"hard_negative_weight": 1.0, "similarity": "cosine", "symmetric": False}}
    usual["off_dropout"] = {"m": 1.0}
    return load_loss(OBJECTIVES[name]).loss(embedded, temperature=0.5, **usual.get(name, {}) | fields)


def candidates(i, kind, pair=(0, 1)):
    """The places of the candidates of a kind that stay, by the words of the docstring."""
    anchor, positive = (ROWS[i][side] for side in pair)
    for j, row in enumerate(ROWS):
        another_positive = kind == pair[1] and row[pair[0]] == anchor
        if (j == i and kind == pair[1]) or not (row[kind] in (anchor, positive) or another_positive):
            yield j


def contrast(kinds, pair=(0, 1), gist=False):
    """The mean of −log( e^s of the own positive / Σ of all that stay ); of GIST also positives against positives."""
    x, losses = np.float64(EMBEDDINGS) / np.linalg.norm(EMBEDDINGS, axis=-1, keepdims=True), []
    for i in range(6):
        terms = [(pair[0], kind, j) for kind in kinds for j in candidates(i, kind, pair)]
        terms += [(1, 1, j) for j in candidates(i, 1) if j != i] if gist else []
        logits = [x[side, i] @ x[kind, j] / 0.5 for side, kind, j in terms]
        losses.append(np.log(np.sum(np.exp(logits))) - x[0, i] @ x[1, i] / 0.5)
    return np.mean(losses)


def guide():
    """Finds no candidate too near: it has the pair's two sentences as the nearest."""
    rows = np.eye(6, dtype=np.float32)
    return {"anchor": rows, "positive": rows, "hard_negatives": -rows[None]}


def test_the_rows_have_every_case():
    assert sorted(candidates(0, 1)) == [0, 1, 3, 5]  # another positive, and one that is the anchor
    assert sorted(candidates(1, 1)) == [0, 1, 2, 4, 5] and sorted(candidates(0, 2)) == [2, 3, 5]


BOTH = {"symmetric": True, "negatives": "both"}
QUEUE = {"queue": np.zeros((2, 5), np.float32), "filled": np.zeros((), np.int32)}


@pytest.mark.parametrize(
    ("name", "kinds", "fields", "expected"),
    [
        ("info_nce", 3, {"symmetric": True}, lambda: (contrast((1, 2)) + contrast((0,), (1, 0))) / 2),
        # It leaves out an anchor's own view anyway.
        ("info_nce", 2, BOTH, lambda: (contrast((1, 0)) + contrast((0, 1), (1, 0))) / 2),
        ("off_dropout", 3, {}, lambda: contrast((1, 2))),
        ("gist", 3, {}, lambda: contrast((1, 0, 2), gist=True)),
        ("momentum_contrast", 3, {}, lambda: contrast((1, 2))),
    ],
)
def test_equal_texts_are_no_negatives_and_different_ones_change_no_bit(name, kinds, fields, expected):
    given = {"teacher": guide()} if name == "gist" else {"state": QUEUE} if name == "momentum_contrast" else {}
    each = [of_batch(kinds, numbers, **given) for numbers in (NUMBERS, None, np.arange(18).reshape(6, 3))]
    found, untold, different = jax.jit(lambda: [loss(name, batch, **fields) for batch in each])()
    np.testing.assert_allclose(found, expected(), rtol=1e-5)
    assert float(untold) > float(found) + 0.1 and float(untold) == float(different)


def test_jensen_shannon():
    local, mask = random(6, 2, 5, seed=1), np.ones((6, 2), np.int32)
    ours = jax.jit(lambda: load_loss(OBJECTIVES["jensen_shannon"]).loss(of_batch(tokens=(jnp.asarray(local), mask))))()
    own, other = [], []
    for i, tokens in enumerate(np.float64(local)):
        scores = tokens @ np.float64(EMBEDDINGS[1]).T
        own.append(np.log1p(np.exp(-scores[:, i])))
        other.append(np.log1p(np.exp(scores[:, [j for j in candidates(i, 1) if j != i]])).mean(axis=1))
    np.testing.assert_allclose(ours, np.mean(own) + np.mean(other) - 2 * np.log(2), rtol=1e-5)


def test_contrastive_tension():
    """A sentence with itself, and two negative pairs, one of which has the same sentence again."""
    batch = of_batch(2, np.array([[0, 0, 0, 1, 1, 1], [0, 2, 0, 1, 1, 3]]).T)
    found = load_loss(OBJECTIVES["contrastive_tension"]).loss(batch, negatives=2)
    products = np.sum(np.float64(EMBEDDINGS[0]) * EMBEDDINGS[1], axis=1)[[0, 3, 1, 5]]
    np.testing.assert_allclose(found, np.mean(np.log1p(np.exp(products * [-1, -1, 1, 1]))), rtol=1e-5)


def test_every_objective_of_the_package_that_contrasts_is_tested_here():
    """And no other one reads whether texts are equal."""
    found = {one.name for one in needing({name: {"weight": 1.0} for name in OBJECTIVES}, "contrasts")}
    in_sums = {"info_nce", "off_dropout", "gist", "momentum_contrast"}
    assert found == {*in_sums, "jensen_shannon", "contrastive_tension"}


def test_missing_negatives_are_left_out_beside_equal_ones():
    present = np.ones((3, 6), bool)
    present[2, 3] = False
    found = Candidates(present, NUMBERS.T, np.full((3, 6), -1), NUMBERS[:, :2]).left_out()
    assert found[:, 2, 3].all() and found.shape == (6, 3, 6)
    for i in range(6):
        assert [j for j in range(6) if not found[i, 2, j]] == [j for j in candidates(i, 2) if j != 3]


def test_sharded_is_whole_also_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(similarity, "SIMILARITIES", 24)
    numbers, rows = jnp.asarray(np.concatenate([NUMBERS, NUMBERS[:2] + 100])), tuple(random(3, 8, 5))

    def of_rows(rows, shared, own, gather, psum):
        def gathered(x):
            return jnp.moveaxis(gather(jnp.moveaxis(x, 1, 0)), 0, 1)

        embedded = alone(named(rows), texts=named(numbers[own].T), own=own, gather=gathered, psum=psum)
        return loss("info_nce", embedded, symmetric=True)

    assert_sharded_is_whole(of_rows, rows)
