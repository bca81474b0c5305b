"""Two whole steps of ESimCSE next to transformers and PyTorch: losses, gradients, the queue, the momentum encoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.against_torch import assert_same_gradient, embedded, module_of, similarities
from support.steps import batch, recipe, settings, term

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.models import parameters
from simcse_jax.models.changes import Repeated
from simcse_jax.objectives.momentum_contrast import OBJECTIVE
from simcse_jax.objectives.rows import Rows
from simcse_jax.objectives.views import CHANGE
from simcse_jax.training.loss import make_loss
from simcse_jax.training.step import init_state, make_step

pytestmark = pytest.mark.slow
NAME, GAMMA, SIZE, RATE = OBJECTIVE.name, 0.75, 12, 0.4


def twice(keys, ids, mask, reading):
    """Our positives, which must be the sentences with tokens repeated, as lists that are padded again."""
    change = Repeated(RATE, reading)
    found = [np.asarray(part) for part in change(keys, ids, mask)]
    for row, there, sentence, own in zip(*found, ids, mask, strict=True):
        words, repeated = list(sentence[own > 0]), list(row[there > 0])
        rest = iter(repeated)
        assert all(word in rest for word in words) and len(repeated) - len(words) <= change.most(len(words))
    assert found[1].sum() > mask.sum()
    return found


def their_loss(params, queue, ids, mask, positives):
    torch = pytest.importorskip("torch")
    encoder, head = module_of(params)
    z1, z2 = embedded(encoder, head, ids, mask), embedded(encoder, head, *positives)
    logits = similarities(z1, torch.cat([z2, queue])) / 0.05
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(z1)))
    loss.backward()
    return loss.item(), encoder, head


@pytest.mark.optimized
@pytest.mark.parametrize("reading", ["paper", "released"])
def test_losses_gradients_and_state_of_two_steps(reading):
    torch = pytest.importorskip("torch")
    graph, params, config = random_model(num_layers=1)
    fields = {"queue": SIZE, "reading": reading}
    chosen = recipe(1, objectives=(term(NAME, tuple(fields.items())),))
    chosen = chosen._replace(plan=chosen.plan._replace(positive_change=Repeated(RATE, reading)))
    own = {NAME: {"weight": 1.0, "temperature": 0.05, "momentum": GAMMA}}
    numbers = settings(objective=own, dropout=0.0, learning_rate=1e-3)
    mesh = data_mesh(jax.devices()[:1])
    gradient_of, step = jax.jit(make_loss(graph, chosen, mesh)), make_step(graph, chosen, mesh)
    params = jax.tree.map(jnp.array, params)
    key = jax.random.key(0, impl="threefry2x32")
    state = init_state(params, numbers, kept={NAME: OBJECTIVE.state(config, params, key, momentum=GAMMA, **fields)})

    momentum = {name: np.float64(value) for name, value in state.kept[NAME].items() if name.startswith("encoder.")}
    if reading == "paper":
        for name, value in momentum.items():
            np.testing.assert_array_equal(value, params[name])
    queue = torch.zeros((0, config.hidden_size), dtype=torch.float64)
    for number in range(2):
        data = batch(1, seed=number)
        ids, mask = data["input_ids"][:, 0], data["attention_mask"][:, 0]
        keys = Rows(data, jnp.int32(number), numbers, ()).keys([CHANGE + 1]).reshape(-1)
        loss, encoder, head = their_loss(state.params, queue, ids, mask, twice(keys, ids, mask, reading))
        (ours, _), gradient = gradient_of(state.params, state.step, data, numbers, None, state.kept)
        assert float(ours) == pytest.approx(loss, rel=1e-5)
        assert_same_gradient(gradient, encoder, head)

        # The released code: γ · momentum + (1 - γ) · encoder, then the batch enters the queue, then the update.
        if number:
            before = parameters.sentence_encoder(state.params)
            momentum = {
                name: GAMMA * value + (1 - GAMMA) * np.float64(before[name]) for name, value in momentum.items()
            }
        with torch.no_grad():
            rows = embedded(module_of({**state.params, **momentum})[0], head, ids, mask)
        queue = torch.cat([queue, rows])[-SIZE:]
        state = jax.tree.map(jnp.array, state)  # a step donates its arrays
        state, _ = step(state, data, numbers)
        kept = state.kept[NAME]
        assert int(kept["filled"]) == len(queue)
        np.testing.assert_allclose(kept["queue"][-len(queue) :], queue.numpy(), atol=1e-5)
