"""The random draws of PyTorch's and NumPy's generators, without PyTorch: both are the Mersenne Twister MT19937.

SentEval seeds the two with the same number. PyTorch, on a CPU, draws the weights of a layer, NumPy the order of rows.
"""

import numpy as np
from jaxtyping import Float32, Float64, Int32


def linear(
    inputs: int, outputs: int, seed: int
) -> tuple[Float32[np.ndarray, "outputs inputs"], Float32[np.ndarray, " outputs"]]:
    """The first values of `torch.nn.Linear(inputs, outputs)` after `torch.manual_seed(seed)`, bit for bit.

    Weights, then biases, are uniform within b = ±1/√inputs: 2 b x - b with x = r / 2²⁴, r the last 24 bits of a draw.

    Args:
      inputs, outputs: of the layer.
      seed: from 0 to 2³² - 1.

    Returns:
      The weights (outputs, inputs) and the biases (outputs,).
    """
    draws = np.random.RandomState(seed).randint(0, 1 << 32, (inputs + 1) * outputs, dtype=np.uint32)
    # PyTorch has √3 · √(1/3) / √inputs for the weights and 1 / √inputs for the biases, both rounded to float32.
    gain = np.sqrt(2 / (1 + np.sqrt(5) ** 2))
    weights = _uniform(draws[: inputs * outputs], np.sqrt(3.0) * (gain / np.sqrt(inputs)))
    return weights.reshape(outputs, inputs), _uniform(draws[inputs * outputs :], 1 / np.sqrt(inputs))


def _uniform(draws: np.ndarray, bound: float) -> Float32[np.ndarray, " N"]:
    bound = float(np.float32(bound))
    fractions: Float64[np.ndarray, " N"] = (draws & 0xFFFFFF) / 2.0**24
    return (fractions * (2 * bound) - bound).astype(np.float32)


def orders(count: int, epochs: int, generator: np.random.RandomState) -> Int32[np.ndarray, "epochs count"]:
    """The next `numpy.random.permutation(count)` of each of several epochs: (epochs, count)."""
    return np.stack([generator.permutation(count).astype(np.int32) for _ in range(epochs)])
