"""ESimCSE's contrast: the equation with its queue, and what it keeps from step to step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random
from support.steps import alone

from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.momentum_contrast import OBJECTIVE, momentum_contrast
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.views import Plan

ANCHORS, POSITIVES, NEGATIVES = random(3, 6, 4)
QUEUE, OWN = random(5, 4, seed=7), np.arange(6)


def by_the_equation(anchors, positives, queue, filled, negatives=(), present=None):
    losses = []
    for number, anchor in enumerate(anchors):
        others = [positives, queue[len(queue) - filled :], *(negatives if present is None else negatives[present])]
        similarities = [cosine(anchor, row) / 0.05 for row in np.concatenate([np.atleast_2d(part) for part in others])]
        losses.append(np.log(np.sum(np.exp(similarities))) - similarities[number])
    return np.array(losses)


@pytest.mark.parametrize("filled", [0, 2, 5])
def test_is_equation_6_with_the_newest_rows_of_the_queue(filled):
    found = momentum_contrast(ANCHORS, POSITIVES, None, QUEUE, filled, OWN, temperature=0.05)
    np.testing.assert_allclose(found, by_the_equation(ANCHORS, POSITIVES, QUEUE, filled), rtol=1e-5, atol=1e-5)


def test_the_gradient_is_the_equation_s():
    def ours(anchors, positives):
        return jnp.sum(momentum_contrast(anchors, positives, None, QUEUE, 3, OWN, temperature=0.05))

    assert_gradient(ours, lambda *rows: by_the_equation(*rows, QUEUE, 3).sum(), ANCHORS, POSITIVES)


def test_hard_negatives_count_unless_the_data_lack_them():
    present = np.array([True, False, True, True, False, True])
    for kept in (None, present):
        there = None if kept is None else Candidates(np.stack([np.ones(6, bool), kept]))
        found = momentum_contrast(ANCHORS, POSITIVES, NEGATIVES, QUEUE, 4, OWN, temperature=0.05, candidates=there)
        expected = by_the_equation(ANCHORS, POSITIVES, QUEUE, 4, NEGATIVES, kept)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_with_an_empty_queue_it_is_info_nce():
    found = momentum_contrast(ANCHORS, POSITIVES, NEGATIVES, QUEUE, 0, OWN, temperature=0.05)
    np.testing.assert_allclose(found, info_nce(ANCHORS, POSITIVES, NEGATIVES, OWN, temperature=0.05), rtol=1e-6)


def test_of_truncated_embeddings_the_queue_s_first_elements_count():
    state = {"queue": jnp.asarray(QUEUE), "filled": jnp.int32(5)}
    views = {"anchor": jnp.asarray(ANCHORS), "positive": jnp.asarray(POSITIVES)}
    seen = alone(views, state=state).truncated(3)
    expected = by_the_equation(ANCHORS[:, :3], POSITIVES[:, :3], QUEUE[:, :3], 5).mean()
    assert float(OBJECTIVE.loss(seen, temperature=0.05)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.exact
def test_the_loss_is_the_same_on_several_devices():
    def loss(rows, queue, own, gather, psum):
        anchors, positives = rows
        losses = momentum_contrast(anchors, gather(positives), None, queue, 3, own, temperature=0.05)
        return psum(jnp.sum(losses))

    assert_sharded_is_whole(loss, (random(8, 4), random(8, 4, seed=1)), QUEUE)


def kept(reading="paper", momentum=0.75):
    _, params, config = random_model(num_layers=1)
    key = jax.random.key(1, impl="threefry2x32")
    params = {name: jnp.asarray(value) for name, value in params.items()}
    return params, OBJECTIVE.state(config, params, key, queue=5, reading=reading, momentum=momentum)


def test_the_queue_has_the_newest_rows_in_the_order_of_the_batches():
    params, state = kept()
    assert state["queue"].shape == (5, 32) and int(state["filled"]) == 0
    batches = [random(count, 32, seed=count) for count in (2, 2, 3, 7)]
    for number, rows in enumerate(batches, 1):
        state = OBJECTIVE.after(state, {"anchor": jnp.asarray(rows)}, params, momentum=0.75)
        seen = np.concatenate(batches[:number])[-5:]
        assert int(state["filled"]) == len(seen)
        np.testing.assert_array_equal(state["queue"][-len(seen) :], seen)


def test_the_momentum_encoder_follows_the_encoder_after_each_step():
    params, state = kept()
    own = {name for name in state if name not in ("queue", "filled")}
    assert own == {name for name in params if name.startswith("encoder.")}  # a head is the trained one
    assert all(state[name] is not params[name] for name in own)  # a step donates both
    for name in own:
        np.testing.assert_array_equal(state[name], params[name])
    moved = {name: value + 1 for name, value in params.items()}
    after = OBJECTIVE.after(state, {"anchor": jnp.zeros((2, 32))}, moved, momentum=0.75)
    for name in own:
        np.testing.assert_allclose(after[name], 0.75 * state[name] + 0.25 * moved[name], rtol=1e-6)


def test_as_released_it_starts_from_bert_s_random_weights():
    params, state = kept("released", momentum=0.5)
    start = {name: 2 * state[name] - params[name] for name in params if name.startswith("encoder.")}
    table = np.asarray(start["encoder.embeddings.word.embedding"])
    assert abs(table.std() - 0.02) < 2e-3 and abs(table.mean()) < 2e-3
    others = [value for name, value in start.items() if name.endswith("kernel") and value.shape == table.shape]
    assert all(np.abs(table - np.asarray(other)).max() > 0.01 for other in others)
    for name, value in start.items():
        if name.endswith((".bias", ".scale")):
            np.testing.assert_allclose(value, float(name.endswith("scale")), atol=1e-6)


def test_what_enters_the_queue_has_neither_dropout_nor_a_change():
    (anchor,) = OBJECTIVE.left(Plan(1, "noisy", anchor_change="shuffled")).values()
    assert (anchor.masks, anchor.noise, anchor.change, anchor.tower) == ((), None, "none", OBJECTIVE.name)
