import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random
from support.taught import assert_same_loss, given, torch_and_losses

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
    own = jnp.arange(rows.shape[1])
    return jnp.mean(gist(rows, rows, guide, guide, own, **(USUAL | fields)))


@pytest.mark.parametrize(
    ("views", "fields"),
    [
        (2, {}),
        (3, {"margin": 0.2}),
        (3, {"margin": 0.1, "margin_kind": "relative"}),
        (2, {"contrast_anchors": False}),
        (3, {"contrast_positives": False, "contrast_anchors": False}),
    ],
)
def test_is_sentence_transformers_loss(views, fields):
    torch, losses = torch_and_losses()
    guide = near(views, 6, 7, 3)

    class Guide(torch.nn.Module):
        """Gives the embeddings of the guide in the order of the columns."""

        def __init__(self):
            super().__init__()
            self.place = itertools.count()

        def forward(self, features):
            return {"sentence_embedding": torch.tensor(guide[next(self.place)])}

    def peer(tensors):
        made = object.__new__(losses.GISTEmbedLoss)
        torch.nn.Module.__init__(made)
        made.model, made.guide, made.must_retokenize = given(torch), Guide(), False
        made.temperature, made.margin_strategy = 0.1, fields.get("margin_kind", "absolute")
        made.margin = fields.get("margin", 0.0)
        made.contrast_anchors = fields.get("contrast_anchors", True)
        made.contrast_positives = fields.get("contrast_positives", True)
        made.gather_across_devices, made.cross_entropy_loss = False, torch.nn.CrossEntropyLoss()
        made.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
        return made([{"sentence_embedding": x} for x in tensors], None)

    assert_same_loss(lambda rows: loss(rows, guide, **fields), peer, random(views, 6, 5))


def by_the_equation(rows, guide, temperature, margin):
    """One candidate at a time, in float64; the guide's cosine with each decides about it."""
    (anchors, positives, negatives), total = np.float64(rows), 0.0
    guided, count = np.float64(guide), len(anchors)
    for i in range(count):
        threshold = cosine(guided[0, i], guided[1, i]) - margin
        terms = [cosine(anchors[i], positives[i])]
        for j in range(count):
            sides = [(0, 1), (0, 0), (1, 1)] if j != i else []
            for side, kind in [*sides, (0, 2)]:
                if cosine(guided[side, i], guided[kind, j]) <= threshold:
                    terms.append(cosine((anchors, positives)[side][i], (anchors, positives, negatives)[kind][j]))
        total += np.log(np.sum(np.exp(np.array(terms) / temperature))) - terms[0] / temperature
    return total / count


def test_value_and_gradient_are_the_equation_s():
    rows, guide = random(3, 4, 3), near(3, 4, 5, 1)
    found = float(loss(rows, guide, temperature=0.3, margin=0.1))
    assert found == pytest.approx(by_the_equation(rows, guide, 0.3, 0.1), rel=1e-5)
    assert found != pytest.approx(float(loss(rows, guide, temperature=0.3, margin=0.5)), rel=1e-3)  # it leaves out more
    assert_gradient(
        lambda rows: loss(rows, guide, temperature=0.3, margin=0.1),
        lambda rows: by_the_equation(rows, guide, 0.3, 0.1),
        rows,
    )


def test_a_pair_that_is_equal_to_the_guide_is_no_negative_of_itself():
    rows, guide = random(2, 2, 4), np.stack([np.eye(2, 4)] * 2).astype(np.float32)
    expected = by_the_equation(np.concatenate([rows, -rows[:1]]), np.concatenate([guide, -guide[:1]]), 0.1, 0.0)
    found = loss(np.concatenate([rows, -rows[:1]]), np.concatenate([guide, -guide[:1]]))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_parts_of_the_rows_change_nothing_and_the_guide_has_no_gradient(monkeypatch):
    rows, guide = random(3, 8, 6), near(3, 8, 5, 1)
    whole = jax.value_and_grad(loss)(rows, guide)
    monkeypatch.setattr(similarity, "SIMILARITIES", 96)
    for ours, expected in zip(jax.value_and_grad(loss)(rows, guide), whole, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_sharded_is_whole():
    guide = near(3, 8, 5, 1)

    def of_rows(rows, shared, own, gather, psum):
        mine, views = jnp.asarray(guide)[:, own], jnp.stack(rows)
        every, guides = (jnp.moveaxis(gather(jnp.moveaxis(x, 1, 0)), 0, 1) for x in (views, mine))
        return psum(jnp.sum(gist(views, every, mine, guides, own, **USUAL))) / 8

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 6)), devices=(2, 4, 8))


def test_negatives_that_are_not_there_are_no_terms():
    rows, guide = random(4, 6, 5), near(4, 6, 7, 1)
    last_nowhere = Candidates(np.arange(4)[:, None] < np.full(6, 3))
    found = loss(rows, guide, known=last_nowhere)
    np.testing.assert_allclose(found, loss(rows[:3], guide[:3], known=Candidates(np.ones((3, 6), bool))), rtol=1e-6)
    assert float(loss(rows, guide)) > float(found)
