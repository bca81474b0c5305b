import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import random_model
from support.steps import settings

from simcse_jax.training.optimizer import Optimization, global_norm, optimizer
from simcse_jax.training.step import init_state

CHOICES = (Optimization("adamw"), Optimization("adamw", bias_correction=False), Optimization("rmsprop"))


def updated(gradients, state, params, chosen, optimization=Optimization(), step=0):  # noqa: B008
    return _updated(optimization, jnp.int32(step), gradients, state, params, chosen)


@functools.partial(jax.jit, static_argnums=0)
def _updated(optimization, step, gradients, state, params, chosen):
    return optimizer(step, chosen, optimization).update(gradients, state, params)


def test_gradients_are_clipped_and_weight_decay_spares_biases_and_norms():
    gradients = {"a": jnp.array([3.0, 4.0])}
    for limit, factor in ((0.0, 1), (0.5, 0.1), (10.0, 1)):
        chosen = settings(max_grad_norm=limit)
        _, state = updated(gradients, init_state(gradients, chosen).optimizer, gradients, chosen)
        np.testing.assert_allclose(adam_of(state).mu["a"], 0.1 * np.array([3.0, 4.0]) * factor, rtol=1e-6)
    _, params, _ = random_model(num_layers=1)
    chosen = settings(weight_decay=0.1, learning_rate=0.5)
    zero = jax.tree.map(np.zeros_like, params)
    updates, _ = updated(zero, init_state(params, chosen).optimizer, params, chosen)
    for name, value in updates.items():
        decayed = name.endswith(("kernel", "embedding"))
        np.testing.assert_allclose(value, -0.05 * np.asarray(params[name]) if decayed else 0, rtol=1e-5, err_msg=name)


def references(rate, decay, epsilon):
    """Each optimizer as an update of a parameter, a gradient, the state of its means, and the number of the step."""

    def means(gradient, state):
        state["mean"] = 0.9 * state.get("mean", 0) + 0.1 * gradient
        state["square"] = 0.999 * state.get("square", 0) + 0.001 * gradient**2
        return state["mean"], state["square"]

    def adamw(x, gradient, state, step):  # torch.optim.AdamW
        mean, square = means(gradient, state)
        x = x * (1 - rate * decay)
        return x - rate * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + epsilon)

    def uncorrected(x, gradient, state, step):  # transformers 4's AdamW with correct_bias=False
        mean, square = means(gradient, state)
        x = x - rate * mean / (np.sqrt(square) + epsilon)
        return x * (1 - rate * decay)

    def rmsprop(x, gradient, state, step):  # torch.optim.RMSprop, after a decay
        state["square"] = 0.9 * state.get("square", 0) + 0.1 * gradient**2
        return x * (1 - rate * decay) - rate * gradient / (np.sqrt(state["square"]) + epsilon)

    return adamw, uncorrected, rmsprop


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(("decay", "limit", "epsilon"), [(0.0, 0.0, 1e-7), (0.1, 1.0, 1e-3)])
def test_several_updates_are_those_of_pytorch_and_transformers(number, decay, limit, epsilon):
    rate, random = 1e-4, np.random.default_rng(0)
    update, of_reference = references(rate, decay, epsilon)[number], {}
    theirs = start = 0.1 * random.normal(size=(5, 4)).astype(np.float32)
    ours = {"kernel": jnp.asarray(start)}
    numbers = settings(learning_rate=rate, weight_decay=decay, max_grad_norm=limit, epsilon=epsilon)
    constant = CHOICES[number]._replace(schedule="constant")
    state = init_state(ours, numbers, constant).optimizer
    for step in range(6):
        gradient = random.normal(size=(5, 4)) * 10.0 ** -random.integers(0, 6, (5, 4))
        gradient[0] = 0  # a word that no sentence has
        clipped = gradient * min(1, limit / np.linalg.norm(gradient)) if limit else gradient
        theirs = update(theirs, clipped, of_reference, step + 1)
        updates, state = updated({"kernel": jnp.float32(gradient)}, state, ours, numbers, constant, step)
        ours = optax.apply_updates(ours, updates)
        np.testing.assert_allclose(ours["kernel"], theirs, rtol=1e-6, atol=5e-8, err_msg=f"step {step}")
    assert np.abs(np.asarray(ours["kernel"]) - start).max() > 3 * rate
    if not decay:
        np.testing.assert_array_equal(ours["kernel"][0], start[0])


@pytest.mark.slow
@pytest.mark.parametrize("number, name, fields", [(0, "AdamW", {"weight_decay": 0.1}), (2, "RMSprop", {"alpha": 0.9})])
def test_the_references_are_pytorch_s(number, name, fields):
    torch, random = pytest.importorskip("torch"), np.random.default_rng(0)
    ours, state, parameter = np.ones(7), {}, torch.nn.Parameter(torch.ones(7, dtype=torch.float64))
    theirs = getattr(torch.optim, name)([parameter], lr=1e-2, eps=1e-7, **fields)
    for step in range(6):
        gradient = random.normal(size=7)
        parameter.grad = torch.tensor(gradient)
        theirs.step()
        ours = references(1e-2, fields.get("weight_decay", 0), 1e-7)[number](ours, gradient, state, step + 1)
        np.testing.assert_allclose(ours, parameter.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize(("name", "stays"), [("adamw", [True, False]), ("rmsprop", [True, True])])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_without_a_gradient(name, decay, stays):
    """Of words that no batch had so far, and of words that one had: docs/guides/recipes.md."""
    numbers = settings(weight_decay=decay, learning_rate=0.1)
    chosen = Optimization(name)
    params = {"embedding": jnp.ones((3, 2))}
    state = init_state(params, numbers, chosen).optimizer
    for step, rows in enumerate(([0, 1, 1], [0, 0, 1], [0, 0, 1])):
        before = params["embedding"], [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (3, 2)]
        gradient = {"embedding": jnp.float32(rows)[:, None] * jnp.ones(2)}
        updates, state = updated(gradient, state, params, numbers, chosen, step)
        params = optax.apply_updates(params, updates)
    after = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (3, 2)]
    for row in (0, 1):
        assert np.array_equal(params["embedding"][row], before[0][row]) == (stays[row] and not decay)
        same = [np.array_equal(new[row], old[row]) for new, old in zip(after, before[1], strict=True)]
        assert {*same} == {row == 0}  # the moments
    assert not np.array_equal(params["embedding"][2], before[0][2])


@pytest.mark.parametrize("bias_correction", [True, False])
def test_a_mean_in_bfloat16_is_rounded_after_the_update_and_nothing_else_is(bias_correction):
    numbers, random = settings(weight_decay=0.1, epsilon=1e-7), np.random.default_rng(0)
    params = {"a.kernel": jnp.asarray(random.normal(size=(7, 5)), jnp.float32), "a.bias": jnp.zeros(5)}
    wide = Optimization(bias_correction=bias_correction)
    narrow = wide._replace(mu_dtype="bfloat16")
    state = init_state(params, numbers, narrow).optimizer
    for step in range(10):
        gradient = {name: jnp.asarray(random.normal(size=x.shape), jnp.float32) for name, x in params.items()}
        before = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x, state)
        expected, exact = updated(gradient, before, params, numbers, wide, step)
        updates, state = updated(gradient, state, params, numbers, narrow, step)
        exact, kept = adam_of(exact), adam_of(state)
        for name in params:
            assert (kept.mu[name].dtype, kept.nu[name].dtype) == (jnp.bfloat16, jnp.float32)
            np.testing.assert_array_equal(updates[name], expected[name])
            np.testing.assert_array_equal(kept.mu[name], exact.mu[name].astype(jnp.bfloat16))
            np.testing.assert_array_equal(kept.nu[name], exact.nu[name])
    assert int(kept.count) == 10


def test_all_roundings_of_a_mean_together_are_less_than_a_twenty_fifth_of_it():
    """And the mean of gradients that stay at zero falls to nothing."""
    numbers, random = settings(max_grad_norm=0.0), np.random.default_rng(0)
    params = {"kernel": jnp.zeros(512)}
    gradients = np.float32(random.normal(size=(400, 512)) + 0.3) * 10.0 ** random.integers(-6, 0, 512)
    gradients[200:, 0] = 0

    def means(mu_dtype):
        chosen = Optimization(mu_dtype=mu_dtype)

        def update(state, gradient):
            _, state = optimizer(jnp.int32(0), numbers, chosen).update({"kernel": gradient}, state, params)
            return state, adam_of(state).mu["kernel"]

        start = init_state(params, numbers, chosen).optimizer
        return np.asarray(jax.lax.scan(update, start, jnp.asarray(gradients, jnp.float32))[1], np.float32)

    exact, rounded = means("float32"), means("bfloat16")
    largest = np.stack([np.abs(exact[max(0, step - 60) : step + 1]).max(axis=0) for step in range(400)])
    assert 0.002 < np.max(np.abs(rounded - exact) / largest) < 0.04
    assert 0 < abs(rounded[-1, 0]) < 1e-8 * abs(rounded[199, 0])


def adam_of(state):
    return next(part for part in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(part, "mu"))


def test_the_norm_of_a_gradient_is_the_same_at_once(monkeypatch):
    random = np.random.default_rng(0)
    gradient = {
        str(number): jnp.asarray(random.normal(size=shape), jnp.float32)
        for number, shape in enumerate([(), (7,), (4, 5), (2, 3, 4)])
    }
    one_by_one = global_norm(gradient)
    assert one_by_one == optax.tree.norm(gradient)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cuda, **others: cuda(*args))
    np.testing.assert_allclose(jax.jit(global_norm)(gradient), one_by_one, rtol=1e-6)
