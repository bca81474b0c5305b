import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.checks import random
from support.recorded import recorded, twice

from simcse_jax.choices import CONVOLUTION_ACTIVATIONS
from simcse_jax.models import convolutions, parameters
from simcse_jax.models.config import Convolutions
from simcse_jax.models.convolutions import Convolution, convolve, fresh, layers
from simcse_jax.models.sentence_encoder import build

SIZE, CHANNELS = 5, 4


def made(widths, params):
    found = [Convolution(width, SIZE, CHANNELS) for width in widths]
    for convolution, (kernel, bias) in zip(found, params, strict=True):
        convolution.kernel.set_value(kernel)
        convolution.bias.set_value(bias)
    return found


def parameters_of(widths):
    return [(random(width, SIZE, CHANNELS, seed=width), random(CHANNELS, seed=9 + width)) for width in widths]


def torch_s(widths, hidden, weights, activation):
    """Features, and the gradients of their sum with these weights: of the states, kernels and biases."""
    import torch

    states = torch.tensor(hidden, requires_grad=True)
    theirs = [torch.nn.Conv1d(SIZE, CHANNELS, width, padding=width // 2) for width in widths]
    for layer, (kernel, bias) in zip(theirs, parameters_of(widths), strict=True):
        layer.weight.data, layer.bias.data = torch.tensor(kernel.transpose(2, 1, 0)), torch.tensor(bias)
    found = torch.cat([layer(states.transpose(1, 2)) for layer in theirs], 1).transpose(1, 2)
    found = torch.relu(found) if activation == "relu" else found
    (found * torch.tensor(weights)).sum().backward()
    gradients = {f"kernel {layer.kernel_size[0]}": layer.weight.grad.permute(2, 1, 0) for layer in theirs}
    gradients |= {f"bias {layer.kernel_size[0]}": layer.bias.grad for layer in theirs}
    return {"features": found.detach(), "states": states.grad, **gradients}


@twice()
@pytest.mark.parametrize("activation", CONVOLUTION_ACTIVATIONS)
def test_values_and_gradients_are_those_of_pytorch(activation, live):
    widths, hidden, weights = (1, 3, 5), random(2, 6, SIZE), random(2, 6, 3 * CHANNELS, seed=2)

    def ours(hidden, params):
        features = convolve(made(widths, params), hidden, jnp.ones((2, 6), int), activation, jnp.float32)
        return jnp.sum(features * weights), features

    run = jax.jit(jax.value_and_grad(ours, argnums=(0, 1), has_aux=True))
    (_, found), (states, params) = run(jnp.array(hidden), parameters_of(widths))
    ours = {"features": found, "states": states}
    for width, (kernel, bias) in zip(widths, params, strict=True):
        ours |= {f"kernel {width}": kernel, f"bias {width}": bias}
    compute = lambda: torch_s(widths, hidden, weights, activation)  # noqa: E731
    theirs = recorded(f"convolutions_{activation}", compute, "torch", live=live)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_convolutions_by_hand_with_zero_padding_and_fresh_ones_are_pytorch_s_with_the_model_s_names():
    _, _, config = random_model()
    config = dataclasses.replace(config, convolutions=Convolutions((1, 5), 300, "none"))
    params = fresh(config, jax.random.key(0))
    _, shapes = build(config, with_head=False)
    own = {name: value.shape for name, value in shapes.items() if name.startswith(convolutions.PREFIX)}
    assert {name: value.shape for name, value in params.items()} == own
    assert len(layers(config)) == 2 and config.token_size == parameters.token_size(params) == 600
    for name, value in params.items():
        bound = (config.hidden_size * (1 if ".0." in name else 5)) ** -0.5
        assert 0.98 * bound < np.abs(value).max() <= bound and np.abs(np.mean(value)) < 0.1 * bound
    assert not np.array_equal(params["convolutions.0.bias"], params["convolutions.1.bias"])
    hidden = jnp.array([[[1.0], [10.0], [100.0], [1000.0]]])
    layer = Convolution(3, 1, 1)
    layer.kernel.set_value(jnp.ones((3, 1, 1)))
    layer.bias.set_value(jnp.array([0.5]))
    found = convolve([layer], hidden, jnp.array([[1, 1, 0, 0]]), "none", jnp.float32)
    assert found[0, :2, 0].tolist() == [11.5, 11.5]
    found = convolve([layer], hidden, jnp.ones((1, 4), int), "none", jnp.float32)
    assert found[0, :, 0].tolist() == [11.5, 111.5, 1110.5, 1100.5]
    # Factors of bfloat16 and sums of float32.
    hidden, made_ones, mask = jnp.array(random(2, 6, SIZE)), made([5], parameters_of([5])), jnp.ones((2, 6), int)
    exact, rounded = (convolve(made_ones, hidden, mask, "none", dtype) for dtype in (jnp.float32, jnp.bfloat16))
    assert rounded.dtype == jnp.float32 and 1e-4 < np.abs(exact - rounded).max() < 0.1
