import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random
from support.recorded import recorded, twice

from simcse_jax.models.projector import Projector, batch_norm, fresh_projector, project, width

HIDDEN = 6
DIFFCSE = Projector(("2D", "D"))  # 6 → 12 → 6
SCD = Projector(("8", "8", "7"), last_norm="none", statistics="each")  # D → 4096 → 4096 → 4096
AFFINE = Projector(("5",), bias=True, last_norm="affine")
BIASED = Projector(("4", "5"), bias=True, last_norm="none")
ALL = {"diffcse": DIFFCSE, "scd": SCD, "affine": AFFINE, "biased": BIASED}


def parameters(projector, seed=1):
    shapes = fresh_projector(projector, HIDDEN, jax.random.key(0))
    return {name: random(*value.shape, seed=seed + place) for place, (name, value) in enumerate(shapes.items())}


def torch_s(projector, params, views, weights):
    """Value and gradients of the same network of PyTorch's modules in training mode, with a bias in SCD's first layer
    as its authors have it."""
    import torch

    sizes = [HIDDEN, *(width(text, HIDDEN) for text in projector.widths)]
    last, modules, own = len(projector.widths) - 1, [], {}
    given = {name: torch.tensor(np.array(value.T)) for name, value in params.items()}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        modules.append(torch.nn.Linear(inputs, outputs, bias=projector.bias if layer == last else projector is SCD))
        own |= {f"layers.{layer}.kernel": modules[-1].weight, f"layers.{layer}.bias": modules[-1].bias}
        if layer < last or projector.last_norm != "none":
            modules.append(torch.nn.BatchNorm1d(outputs, affine=f"norms.{layer}.scale" in params))
            own |= {f"norms.{layer}.scale": modules[-1].weight, f"norms.{layer}.bias": modules[-1].bias}
        modules += [torch.nn.ReLU()] * (layer < last)
    for name, value in given.items():
        own[name].data = value
    rows = torch.tensor(views.reshape(-1, HIDDEN), requires_grad=True)
    result = torch.nn.Sequential(*modules).train()(rows)
    result.backward(torch.tensor(weights.reshape(result.shape)))
    return {"value": result.detach(), "rows": rows.grad} | {name: own[name].grad.T for name in params}


@twice()
@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients_are_torch_s_in_training_mode(name, live):
    projector = ALL[name]
    params, views = parameters(projector), random(2, 9, HIDDEN)
    weights = random(2, 9, width(projector.widths[-1], HIDDEN), seed=7)

    @jax.jit
    def ours(views, params):
        value = project(views, projector, params, lambda x: x)
        return jnp.sum(weights * value), value

    (rows, gradients), value = jax.grad(ours, argnums=(0, 1), has_aux=True)(views, params)
    theirs = recorded(f"projector_{name}", lambda: torch_s(projector, params, views, weights), "torch", live=live)
    np.testing.assert_allclose(value.reshape(18, -1), theirs["value"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows.reshape(18, -1), theirs["rows"], atol=1e-5 * np.abs(theirs["rows"]).max())
    for part, found in gradients.items():
        np.testing.assert_allclose(found, theirs[part], atol=1e-5 * max(1, np.abs(theirs[part]).max()), err_msg=part)


@pytest.mark.exact
@pytest.mark.parametrize("name", ["diffcse", "scd"])
def test_values_and_gradients_are_the_same_on_several_devices(name):
    projector = ALL[name]
    weights = random(8, 2, width(projector.widths[-1], HIDDEN), seed=7)

    def loss(rows, params, own, gather, psum):
        views, weights = rows
        return psum(jnp.sum(jnp.moveaxis(weights, 1, 0) * project(jnp.moveaxis(views, 1, 0), projector, params, psum)))

    assert_sharded_is_whole(loss, (random(8, 2, HIDDEN), weights), parameters(projector), devices=(8,))


def test_several_runs_at_once_are_each_alone_and_statistics_are_over_all_views_that_are_given():
    params = [parameters(DIFFCSE, seed) for seed in (1, 20)]
    views = random(2, 3, 8, HIDDEN)
    one = jax.jit(lambda views, params: project(views, DIFFCSE, params, lambda x: x))
    together = jax.vmap(one)(views, jax.tree.map(lambda *x: np.stack(x), *params))
    for row in range(2):
        alone = one(views[row], params[row])
        np.testing.assert_allclose(together[row], alone, rtol=1e-5, atol=1e-6)
        found = alone.reshape(24, HIDDEN)
        np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose((found**2).mean(axis=0), 1, atol=1e-3)
    np.testing.assert_array_equal(batch_norm(np.ones((4, 2), np.float32), lambda x: x), 0)


def test_initial_values_and_widths():
    params = fresh_projector(Projector(("4096", "D"), bias=True, last_norm="affine"), 96, jax.random.key(3))
    shapes = {"layers.0.kernel": (96, 4096), "layers.1.kernel": (4096, 96)}
    shapes |= dict.fromkeys(("norms.0.scale", "norms.0.bias"), (4096,))
    shapes |= dict.fromkeys(("layers.1.bias", "norms.1.scale", "norms.1.bias"), (96,))
    assert {name: value.shape for name, value in params.items()} == shapes
    for name, value in params.items():
        if name.endswith("kernel"):
            assert np.std(value) == pytest.approx(0.02, rel=0.01)
        else:
            np.testing.assert_array_equal(value, float(name.endswith("scale")))
    assert np.abs(params["layers.0.kernel"].T[:96] - params["layers.1.kernel"][:96]).max() > 0.01
    assert [width(text, 768) for text in ("4096", "D", "2D")] == [4096, 768, 1536]
