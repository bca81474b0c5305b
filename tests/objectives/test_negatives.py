"""Each objective that contrasts in the batch, against loops over the texts themselves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random
from support.steps import alone

from simcse_jax.data.equal_texts import numbered
from simcse_jax.objectives import similarity
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.registry import OBJECTIVES, needing

# The same query twice, two queries with one answer, an answer that is a query; hard negatives that are positives of
# their own anchor, of another one, an anchor, and one that nothing equals.
ROWS = [
    ("ask", "answer", "answer"),
    ("why", "so", "ask"),
    ("ask", "reply", "so"),
    ("how", "so", "never"),
    ("when", "ask", "answer"),
    ("where", "here", "why"),
]
NUMBERS = numbered(ROWS)[0]
NAMES = "anchor", "positive", "hard_negatives"
EMBEDDINGS = random(3, 6, 5)
NUMBER = {"temperature": 0.5}


def texts_of(rows, kinds=3):
    columns = jnp.asarray(rows).T[:kinds]
    return dict(zip(NAMES, [*columns[:2], columns[2:]], strict=kinds == 3))


def views_of(embeddings, kinds=3):
    return dict(zip(NAMES, [*embeddings[:2], embeddings[2:kinds]], strict=False)) | (
        {} if kinds == 3 else {"hard_negatives": jnp.zeros((0, *embeddings[0].shape))}
    )


def candidates(i, kind, pair=(0, 1)):
    """The places of the candidates of a kind that stay, by the words of the docstring."""
    anchor, positive = (ROWS[i][side] for side in pair)
    for j, row in enumerate(ROWS):
        another_positive = kind == pair[1] and row[pair[0]] == anchor
        if (j == i and kind == pair[1]) or not (row[kind] in (anchor, positive) or another_positive):
            yield j


def unit(x):
    return np.float64(x) / np.linalg.norm(x, axis=-1, keepdims=True)


def contrast(kinds, pair=(0, 1), gist=False):
    """The mean of −log( e^s of the own positive / Σ of all that stay ); of GIST also positives against positives."""
    x, losses = unit(EMBEDDINGS), []
    for i in range(6):
        terms = [(pair[0], kind, j) for kind in kinds for j in candidates(i, kind, pair)]
        terms += [(1, 1, j) for j in candidates(i, 1) if j != i] if gist else []
        logits = [x[side, i] @ x[kind, j] / NUMBER["temperature"] for side, kind, j in terms]
        losses.append(np.log(np.sum(np.exp(logits))) - x[0, i] @ x[1, i] / NUMBER["temperature"])
    return np.mean(losses)


def info_nce(embedded, **fields):
    usual = {"hard_negative_weight": 1.0, "similarity": "cosine", "symmetric": False} | NUMBER
    return OBJECTIVES["info_nce"].loss(embedded, **(usual | fields))


def gist(embedded):
    return OBJECTIVES["gist"].loss(embedded, **NUMBER)


def off_dropout(embedded):
    return OBJECTIVES["off_dropout"].loss(embedded, m=1.0, **NUMBER)


def clean(named):
    return named | {f"clean_{name}": rows for name, rows in named.items()}


def of_batch(kinds=3, telling=True, named=lambda x: x, **fields):
    texts = named(texts_of(NUMBERS, kinds)) if telling else None
    views = {name: rows for name, rows in views_of(jnp.asarray(EMBEDDINGS), kinds).items() if len(rows)}
    return alone(named(views), texts=texts, **fields)


def guide():
    """Finds no candidate too near: it has the pair's two sentences as the nearest."""
    rows = np.eye(6, dtype=np.float32)
    return {"anchor": rows, "positive": rows, "hard_negatives": -rows[None]}


def test_the_rows_have_every_case():
    assert sorted(candidates(0, 1)) == [0, 1, 3, 5]  # another positive, and one that is the anchor
    assert sorted(candidates(1, 1)) == [0, 1, 2, 4, 5] and sorted(candidates(0, 2)) == [2, 3, 5]


@pytest.mark.parametrize(
    ("kinds", "fields", "expected"),
    [
        (3, {}, lambda: contrast((1, 2))),
        (3, {"symmetric": True}, lambda: (contrast((1, 2)) + contrast((0,), (1, 0))) / 2),
    ],
)
def test_info_nce(kinds, fields, expected):
    np.testing.assert_allclose(info_nce(of_batch(kinds), **fields), expected(), rtol=1e-5)
    assert float(info_nce(of_batch(kinds, telling=False), **fields)) > float(expected()) + 0.1


def test_info_nce_with_negatives_of_both_views():
    """Which leaves out an anchor's own view anyway."""
    both = (contrast((1, 0)) + contrast((0, 1), (1, 0))) / 2
    np.testing.assert_allclose(info_nce(of_batch(2), negatives="both", symmetric=True), both, rtol=1e-5)


def test_off_dropout():
    np.testing.assert_allclose(off_dropout(of_batch(named=clean)), contrast((1, 2)), rtol=1e-5)


def test_gist():
    expected = contrast((1, 0, 2), gist=True)
    np.testing.assert_allclose(gist(of_batch(teacher=guide())), expected, rtol=1e-5)


def test_momentum_contrast_with_an_empty_queue():
    state = {"queue": jnp.zeros((2, 5)), "filled": jnp.int32(0)}
    found = OBJECTIVES["momentum_contrast"].loss(of_batch(state=state), **NUMBER)
    np.testing.assert_allclose(found, contrast((1, 2)), rtol=1e-5)


def test_jensen_shannon():
    local, mask = random(6, 2, 5, seed=1), np.ones((6, 2), np.int32)
    ours = OBJECTIVES["jensen_shannon"].loss(of_batch(tokens=(jnp.asarray(local), mask)))
    own, other = [], []
    for i, tokens in enumerate(np.float64(local)):
        scores = tokens @ np.float64(EMBEDDINGS[1]).T
        own.append(np.log1p(np.exp(-scores[:, i])))
        kept = [j for j in candidates(i, 1) if j != i]
        other.append(np.log1p(np.exp(scores[:, kept])).mean(axis=1))
    np.testing.assert_allclose(ours, np.mean(own) + np.mean(other) - 2 * np.log(2), rtol=1e-5)


def test_contrastive_tension():
    """A sentence with itself, and two negative pairs, one of which has the same sentence again."""
    texts = {"anchor": jnp.array([0, 0, 0, 1, 1, 1]), "positive": jnp.array([0, 2, 0, 1, 1, 3])}
    views = views_of(EMBEDDINGS, 2)
    found = OBJECTIVES["contrastive_tension"].loss(alone(views, texts=texts), negatives=2)
    products = np.sum(np.float64(EMBEDDINGS[0]) * EMBEDDINGS[1], axis=1)[[0, 3, 1, 5]]
    np.testing.assert_allclose(found, np.mean(np.log1p(np.exp(products * [-1, -1, 1, 1]))), rtol=1e-5)


def test_every_objective_of_the_package_that_contrasts_is_tested_here():
    """And no other one reads whether texts are equal."""
    config = {name: {"weight": 1.0} for name in OBJECTIVES}
    named = {one.name for one in needing(config, "contrasts")}
    in_sums = {"info_nce", "off_dropout", "gist", "momentum_contrast"}
    assert named == {*in_sums, "jensen_shannon", "contrastive_tension"}


@pytest.mark.parametrize("loss", [info_nce, off_dropout, gist])
def test_different_texts_change_no_bit(loss):
    fields = {"named": clean, "teacher": guide()}
    different = jnp.arange(18).reshape(6, 3)
    batch = of_batch(telling=False, **fields)
    told = alone(batch.views, texts=clean(texts_of(different)), teacher=guide())
    np.testing.assert_array_equal(jax.jit(lambda: loss(told))(), jax.jit(lambda: loss(batch))())


def test_missing_negatives_are_left_out_beside_equal_ones():
    present = np.ones((3, 6), bool)
    present[2, 3] = False
    found = Candidates(present, NUMBERS.T, np.full((3, 6), -1), NUMBERS[:, :2]).left_out()
    assert found[:, 2, 3].all() and found.shape == (6, 3, 6)
    for i in range(6):
        assert [j for j in range(6) if not found[i, 2, j]] == [j for j in candidates(i, 2) if j != 3]


@pytest.mark.parametrize("chunk", [0, 13])
def test_sharded_is_whole(chunk, monkeypatch):
    """Also some rows at a time."""
    monkeypatch.setattr(similarity, "SIMILARITIES", chunk or similarity.SIMILARITIES)
    numbers = jnp.asarray(np.concatenate([NUMBERS, NUMBERS[:2] + 100]))
    rows = tuple(random(3, 8, 5))

    def of_rows(rows, shared, own, gather, psum):
        def gathered(x):
            return jnp.moveaxis(gather(jnp.moveaxis(x, 1, 0)), 0, 1)

        texts, views = texts_of(numbers[own]), views_of(jnp.stack(rows))
        embedded = dataclasses.replace(alone(views, texts=texts), own=own, gather=gathered, psum=psum)
        return info_nce(embedded, symmetric=True)

    assert_sharded_is_whole(of_rows, rows, devices=(2, 4))
