"""Two whole steps of ESimCSE next to transformers and PyTorch: losses, gradients, the queue, the momentum encoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import assert_arrays
from support.against_torch import assert_same_step, drawn_model, embedded, loss_and_gradient, module_of, similarities
from support.recorded import recorded
from support.steps import batch, recipe, settings, term

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.models import parameters
from simcse_jax.models.changes import Repeated
from simcse_jax.objectives.momentum_contrast import MomentumContrast
from simcse_jax.objectives.rows import Rows
from simcse_jax.objectives.views import CHANGE
from simcse_jax.training.loss import make_loss
from simcse_jax.training.step import init_state, make_step

OBJECTIVE = MomentumContrast()

NAME, GAMMA, SIZE, RATE = OBJECTIVE.name, 0.75, 12, 0.4
LIVE = [pytest.param(each, True, marks=[pytest.mark.slow, pytest.mark.optimized]) for each in ("paper", "released")]


def twice_in(keys, ids, mask, reading):
    """Our positives, which must be the sentences with tokens repeated, as lists that are padded again."""
    change = Repeated(RATE, reading)
    found = [np.asarray(part) for part in change(keys, ids, mask)]
    for row, there, sentence, own in zip(*found, ids, mask, strict=True):
        words, repeated = list(sentence[own > 0]), list(row[there > 0])
        rest = iter(repeated)
        assert all(word in rest for word in words) and len(repeated) - len(words) <= change.most(len(words))
    assert found[1].sum() > mask.sum()
    return found


def their_step(params, momentum, queue, ids, mask, positives):
    """Of a batch, with the queue after it; `momentum` are the parameters of its encoder."""
    import torch

    encoder, head = module_of(params)
    z1, z2 = embedded(encoder, head, ids, mask), embedded(encoder, head, *positives)
    logits = similarities(z1, torch.cat([z2, torch.tensor(queue, dtype=torch.float64)])) / 0.05
    found = loss_and_gradient(torch.nn.functional.cross_entropy(logits, torch.arange(len(z1))), encoder, head)
    with torch.no_grad():
        rows = embedded(module_of({**params, **momentum})[0], head, ids, mask)
    return found | {"loss: queue": np.concatenate([queue, rows.numpy()])[-SIZE:]}


@pytest.mark.parametrize(("reading", "live"), [("paper", False), *LIVE])
def test_losses_gradients_and_state_of_two_steps(reading, live):
    """Recorded is the first one, before its update."""
    graph, params, config = drawn_model()
    fields = {"queue": SIZE, "reading": reading}
    chosen = recipe(1, objectives=(term(NAME, tuple(fields.items())),))
    chosen = chosen._replace(plan=chosen.plan._replace(positive_change=Repeated(RATE, reading)))
    own = {NAME: {"weight": 1.0, "temperature": 0.05, "momentum": GAMMA}}
    numbers = settings(objective=own, dropout=0.0, learning_rate=1e-3)
    mesh = data_mesh(jax.devices()[:1])
    gradient_of, step = jax.jit(make_loss(graph, chosen, mesh)), make_step(graph, chosen, mesh)
    key = jax.random.key(0, impl="threefry2x32")
    state = init_state(
        params, numbers, kept={NAME: OBJECTIVE.initial_state(config, params, key, momentum=GAMMA, **fields)}
    )
    momentum = {name: np.float64(value) for name, value in state.kept[NAME].items() if name.startswith("encoder.")}
    if reading == "paper":
        assert_arrays(params, momentum)
    else:  # which draws it, with numbers of JAX's
        momentum = {name: np.float64(params[name]) / 2 for name in momentum}
        state.kept[NAME].update({name: jnp.float32(value) for name, value in momentum.items()})
    queue = np.zeros((0, config.hidden_size))
    for number in range(2):
        data = batch(1, seed=number)
        ids, mask = data["input_ids"][:, 0], data["attention_mask"][:, 0]
        keys = Rows(data, jnp.int32(number), numbers, ()).keys([CHANGE + 1]).reshape(-1)
        positives = twice_in(keys, ids, mask, reading)
        # The released code: γ · momentum + (1 - γ) · encoder, then the batch enters the queue, then the update.
        before = parameters.sentence_encoder(state.params)
        kept = {name: GAMMA * value + (1 - GAMMA) * np.float64(before[name]) for name, value in momentum.items()}
        momentum = kept if number else momentum
        given = (state.params, momentum, queue, ids, mask, positives)
        compute = lambda given=given: their_step(*given)  # noqa: E731
        theirs = recorded(f"steps/esimcse_{reading}_{number}", compute, "torch", "transformers", live=live)
        (ours, _), gradient = gradient_of(state.params, state.step, data, numbers, None, state.kept)
        assert_same_step(ours, gradient, theirs)
        if not live:
            break
        queue = theirs["loss: queue"]
        state, _ = step(jax.tree.map(jnp.array, state), data, numbers)  # a step donates its arrays
        assert int(state.kept[NAME]["filled"]) == len(queue)
        np.testing.assert_allclose(state.kept[NAME]["queue"][-len(queue) :], queue, atol=1e-5)
