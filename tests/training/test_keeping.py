import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import assert_arrays, random_model
from support.resuming import trained_and_resumed
from support.run_configs import short_run
from support.steps import batch, recipe, settings, term

from simcse_jax import SimCSE
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.parts import distribute
from simcse_jax.models import parameters
from simcse_jax.models.changes import Repeated
from simcse_jax.objectives.momentum_contrast import MomentumContrast
from simcse_jax.training.step import init_state, make_step

OBJECTIVE = MomentumContrast()

NAME = OBJECTIVE.name
TERM = term(NAME, (("queue", 20), ("reading", "paper")))
STEPS = 3  # of 8 sentences: the queue fills, and the oldest leave it


def numbers(momentum=0.5, **changes):
    """A large ε makes AdamW's steps smooth, so that rounding is not blown up."""
    own = {NAME: {"weight": 1.0, "temperature": 0.05, "momentum": momentum}}
    return settings(objective=own, learning_rate=0.1, epsilon=1.0) | changes


def fresh(chosen):
    graph, params, config = random_model(num_layers=1)
    params = jax.tree.map(jnp.array, params)
    momentum = float(chosen["objective"][NAME]["momentum"])
    state = OBJECTIVE.initial_state(config, params, jax.random.key(0), queue=20, reading="paper", momentum=momentum)
    return graph, init_state(params, chosen, kept={NAME: state})


def esimcse(**changes):
    return recipe(1, objectives=(TERM,), changed={"positive_change": Repeated(0.4)}, **changes)


def trained(devices=1, chosen=None, **changes):
    chosen = chosen or numbers()
    graph, state = fresh(chosen)
    mesh = data_mesh(jax.devices()[:devices])
    step, state, losses = make_step(graph, esimcse(**changes), mesh), distribute(state, mesh), []
    for number in range(STEPS):
        state, metrics = step(state, batch(1, seed=number), chosen)
        losses.append(float(metrics["loss"]))
    return state, losses


def test_the_batch_enters_the_queue_as_the_momentum_encoder_embeds_it_without_dropout():
    graph, state = fresh(numbers())
    data, mesh = batch(1), data_mesh(jax.devices()[:2])
    lengths = data["attention_mask"][:, 0].sum(axis=1)
    together = int(np.add.reduceat(lengths, [0, 2, 4, 6]).max())
    step = make_step(graph, esimcse(chunk_size=2, most_tokens=(together,)), mesh)
    moved = {name: 1.1 * value if name.startswith("encoder.") else value for name, value in state.kept[NAME].items()}
    state = distribute(state._replace(kept={NAME: moved}), mesh)

    @jax.jit
    def entered(state):  # its parameters are not computed
        kept = step(state, data, numbers())[0].kept[NAME]
        return kept["queue"], kept["filled"]

    params = state.params | {name: value for name, value in moved.items() if name.startswith("encoder.")}
    encode = jax.jit(lambda params, *rows: parameters.merge(graph, params)(*rows, pooler="cls", use_head=True))
    expected = encode(params, data["input_ids"][:, 0], data["attention_mask"][:, 0])
    queue, filled = entered(state)
    assert int(filled) == 8 and not np.any(queue[:-8])
    np.testing.assert_allclose(queue[-8:], expected, atol=1e-5)


@pytest.fixture(scope="module")
def whole():
    return trained()


@pytest.mark.exact
@pytest.mark.slow
@pytest.mark.parametrize("devices, changes", [(4, {}), (2, {"chunk_size": 4, "most_tokens": (50,)})])
def test_the_queue_and_the_momentum_encoder_are_the_same_on_several_devices_and_in_chunks(whole, devices, changes):
    """Also without padding: 4 sentences have at most 50 tokens."""
    (expected, losses), (found, own) = whole, trained(devices, **changes)
    np.testing.assert_allclose(own, losses, rtol=1e-5)
    assert int(found.kept[NAME]["filled"]) == 20
    assert_arrays(found.kept[NAME], expected.kept[NAME], atol=1e-5)


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_and_its_model_is_an_encoder_alone(tiny_bert, corpus, tmp_path, capsys):
    chosen = {f"objective__{NAME}__weight": 1.0, f"objective__{NAME}__queue": 20, "objective__info_nce__weight": 0.0}
    chosen |= {"views__positive_change": "repeated", "parallel__chunk_size": 2, "model__num_layers": 1}
    chosen |= {"train__ema_decay": 0.5}
    trained_and_resumed(short_run(tiny_bert, corpus["txt"], corpus["dev"], **chosen), tmp_path)
    sums = [json.loads((tmp_path / run / "checkpoints/4/checksum/metadata").read_text()) for run in ("run", "stopped")]
    assert sums[0] == sums[1] and sums[0].keys() == {"params", "optimizer", "kept"}
    before = json.loads((tmp_path / "run/checkpoints/2/checksum/metadata").read_text())
    assert before["kept"] != sums[0]["kept"]
    assert SimCSE(str(tmp_path / "run")).encode(["A sentence."]).shape == (1, 32)
