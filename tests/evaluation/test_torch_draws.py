import numpy as np
import pytest

from simcse_jax.evaluation import torch_draws


@pytest.mark.parametrize("inputs, outputs", [(1, 2), (7, 3), (384, 6), (1536, 2)])
@pytest.mark.parametrize("seed", [0, 1111, 2**32 - 1])
def test_a_linear_layer_starts_as_in_pytorch(inputs, outputs, seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    layer = torch.nn.Linear(inputs, outputs)
    weights, biases = torch_draws.linear(inputs, outputs, seed)
    np.testing.assert_array_equal(weights, layer.weight.detach().numpy(), strict=True)
    np.testing.assert_array_equal(biases, layer.bias.detach().numpy(), strict=True)


def test_orders_follow_one_another_as_in_numpy():
    np.random.seed(1111)
    expected = [np.random.permutation(20), *(np.random.permutation(19) for _ in range(3))]
    generator = np.random.RandomState(1111)
    generator.permutation(20)
    np.testing.assert_array_equal(torch_draws.orders(19, 3, generator), expected[1:])
