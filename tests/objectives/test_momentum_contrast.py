"""ESimCSE's contrast: the equation with its queue, and what it keeps from step to step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.checks import cosine, random
from support.equations import assert_is_equation
from support.steps import alone

from simcse_jax.objectives.momentum_contrast import MomentumContrast, momentum_contrast
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.views import Plan

OBJECTIVE = MomentumContrast()

QUEUE, OWN = random(5, 4, seed=7), np.arange(6)
WEIGHTS, ALL = np.float32([1, -2, 3, 1, 2, -1]), np.ones(6, bool)
SOME = np.array([True, False, True, True, False, True])


def by_the_equation(anchors, positives, queue, filled, negatives=()):
    losses = []
    for number, anchor in enumerate(anchors):
        others = [*positives, *queue[len(queue) - filled :], *negatives]
        similarities = [cosine(anchor, row) / 0.05 for row in others]
        losses.append(np.log(np.sum(np.exp(similarities))) - similarities[number])
    return np.array(losses)


@pytest.mark.parametrize(("filled", "there"), [(0, ALL), (2, None), (5, None), (4, SOME)])
def test_value_and_gradient_are_equation_6_s_with_the_newest_rows_of_the_queue(filled, there):
    """And with hard negatives, unless the data lack them. With an empty queue it is InfoNCE."""
    candidates = Candidates(np.stack([ALL, there])) if there is SOME else None

    def ours(rows):
        given = rows[0], rows[1], None if there is None else rows[2], QUEUE, filled, OWN
        return jnp.sum(WEIGHTS * momentum_contrast(*given, temperature=0.05, candidates=candidates))

    def equation(rows):
        return WEIGHTS @ by_the_equation(*rows[:2], QUEUE, filled, () if there is None else rows[2, there])

    assert_is_equation(ours, equation, random(2 + (there is not None), 6, 4))


def test_of_truncated_embeddings_the_queue_s_first_elements_count():
    anchors, positives = random(2, 6, 4)
    state = {"queue": jnp.asarray(QUEUE), "filled": jnp.int32(5)}
    seen = alone({"anchor": jnp.asarray(anchors), "positive": jnp.asarray(positives)}, state=state).truncated(3)
    expected = by_the_equation(anchors[:, :3], positives[:, :3], QUEUE[:, :3], 5).mean()
    found = jax.jit(lambda: OBJECTIVE.loss(seen, temperature=0.05))()
    assert float(found) == pytest.approx(expected, rel=1e-5)


@functools.cache
def kept(reading="paper", momentum=0.75):
    _, params, config = random_model(num_layers=1)
    key = jax.random.key(1, impl="threefry2x32")
    params = {name: jnp.asarray(value) for name, value in params.items()}
    return params, OBJECTIVE.initial_state(config, params, key, queue=5, reading=reading, momentum=momentum)


after = jax.jit(functools.partial(OBJECTIVE.next_state, momentum=0.75))


def test_the_queue_has_the_newest_rows_in_the_order_of_the_batches():
    state = {"queue": kept()[1]["queue"], "filled": kept()[1]["filled"]}
    assert state["queue"].shape == (5, 32) and int(state["filled"]) == 0
    batches = [random(count, 32, seed=count) for count in (2, 2, 3, 7)]
    for number, rows in enumerate(batches, 1):
        state = after(state, {"anchor": jnp.asarray(rows)}, {})
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
    moved = {name: np.asarray(value) + 1 for name, value in params.items()}
    found = after(state, {"anchor": jnp.zeros((2, 32))}, moved)
    for name in own:
        np.testing.assert_allclose(found[name], 0.75 * np.asarray(state[name]) + 0.25 * moved[name], rtol=1e-6)


def test_as_released_it_starts_from_bert_s_random_weights():
    params, state = jax.tree.map(np.asarray, kept("released", momentum=0.5))
    start = {name: 2 * state[name] - params[name] for name in params if name.startswith("encoder.")}
    table = start["encoder.embeddings.word.embedding"]
    assert abs(table.std() - 0.02) < 2e-3 and abs(table.mean()) < 2e-3
    others = [value for name, value in start.items() if name.endswith("kernel") and value.shape == table.shape]
    assert all(np.abs(table - other).max() > 0.01 for other in others)
    for name, value in start.items():
        if name.endswith((".bias", ".scale")):
            np.testing.assert_allclose(value, float(name.endswith("scale")), atol=1e-6)


def test_what_enters_the_queue_has_neither_dropout_nor_a_change():
    (anchor,) = OBJECTIVE.state_views(Plan(1, "noisy", anchor_change="shuffled")).values()
    assert (anchor.masks, anchor.noise, anchor.change, anchor.tower) == ((), None, "none", OBJECTIVE.name)
