"""SentEval's regressor: a softmax over score bins on frozen embeddings, for STS-B and SICK-R.

For u and v, the embeddings of a pair, with r = (1, 2, 3, 4, 5):

    p = softmax(W [|u - v|; u ⊙ v] + b),    ŷ = r · p,    loss = mean (p - t(y))²,
    t(y)_i = y - ⌊y⌋ for i = ⌊y⌋ + 1,  ⌊y⌋ - y + 1 for i = ⌊y⌋,  0 otherwise

(t: Tai et al. 2015, section 4.2). As in SentEval's relatedness.py: Adam, learning rate 0.001, batches of 64; Pearson's
correlation on the development set after every 50 epochs keeps the best parameters and ends training at its fourth
failure. STS-B has scores below 1 but no bin 0: there t(y) = (y, 0, 0, 0, 0). The initial parameters have the
distribution of PyTorch's, but are not the same draw, and nor are the batches.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float32, Float64, Int, Key

from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.evaluator import Embed, Encode, by_task, encode_once, pair_features, with_titles
from simcse_jax.host.storage import local_path

BINS = 5
BATCH = 64
EPOCHS = 50  # between two scores on the development set
MAX_EPOCHS = 1000  # training stops above it
PATIENCE = 3  # scores in all that may fail to improve before training ends
SEED = 1111

Params = dict[str, jax.Array]
_optimizer = optax.adam(1e-3)


def read(data: str, tasks: list[str]) -> dict[str, dict[str, sts.Pairs]]:
    """Training, development and test pairs of the tasks that have them, STS-B and SICK-R."""
    folder = local_path(data)
    by_task: dict[str, dict[str, sts.Pairs]] = {}
    for task in tasks:
        for split, file in sts.SINGLE_FILES.get(task, {}).items():
            pairs = sts.read_task(folder, task, split)
            if pairs is None:
                raise UserError(f"{folder / file}: not found; the regressor of {task} needs it")
            by_task.setdefault(task, {})[split] = pairs
    return by_task


def evaluate(encode: Encode, tasks: dict[str, dict[str, sts.Pairs]]) -> dict[str, dict[str, Any]]:
    """Trains a regressor for each task.

    Returns:
      By task {"spearman": …, "pearson": …, "mse": …, "dev_pearson": …, "epochs": …}: correlations × 100 on the test
      pairs, the mean squared error in points of the score.
    """
    results = {}
    for task, splits in with_titles(tasks):
        sides = iter(encode_once(encode, (side for pairs in splits.values() for side in pairs[:2])))
        inputs = {split: pair_features(next(sides), next(sides)) for split in splits}
        gold = {split: pairs.gold for split, pairs in splits.items()}
        predicted, best, epochs = fit(inputs, gold)
        results[task] = {
            "spearman": round(sts.spearman(predicted, gold["test"]), 4),
            "pearson": round(sts.pearson(predicted, gold["test"]), 4),
            "mse": round(float(np.mean((predicted - gold["test"]) ** 2)), 4),
            "dev_pearson": round(best, 4),
            "epochs": epochs,
        }
    return results


@dataclasses.dataclass(frozen=True)
class WithRegressor(sts.Similarity):
    """Scores similarity tasks, and adds the regressor's figures to those of its tasks."""

    graded: dict[str, dict[str, sts.Pairs]] = dataclasses.field(default_factory=dict)

    def __call__(self, embed: Embed) -> dict[str, Any]:
        """The numbers of one model."""
        numbers = super().__call__(embed)
        for task, regressor in by_task(evaluate, embed, self.graded).items():
            numbers[task]["regressor"] = regressor
        return numbers


def targets(gold: Float[np.ndarray, " P"]) -> Float32[np.ndarray, "P 5"]:
    """t(y) of the module's docstring: (P,) scores from 0 to 5 to (P, 5) float32."""
    floor, bins = np.floor(gold)[:, None], np.arange(1, BINS + 1)
    above, below = gold[:, None] - floor, floor - gold[:, None] + 1
    return (np.where(bins == floor + 1, above, 0) + np.where(bins == floor, below, 0)).astype(np.float32)


def fit(
    inputs: dict[str, Float[np.ndarray, "_ width"]], gold: dict[str, Float[np.ndarray, " _"]]
) -> tuple[Float64[np.ndarray, " P"], float, int]:
    """Trains on "train", stops on "dev", predicts the scores of "test".

    Returns:
      The predicted scores (P,), the best Pearson × 100 on the development set, and the number of epochs trained.
    """
    places = {split: jnp.asarray(values, jnp.float32) for split, values in inputs.items()}
    wanted = jnp.asarray(targets(gold["train"]))
    bound, width = 1 / np.sqrt(inputs["train"].shape[1]), inputs["train"].shape[1]
    generator = np.random.default_rng(SEED)
    params = {
        "kernel": jnp.asarray(generator.uniform(-bound, bound, (width, BINS)), jnp.float32),
        "bias": jnp.asarray(generator.uniform(-bound, bound, BINS), jnp.float32),
    }
    state, key = _optimizer.init(params), jax.random.key(SEED)
    best, kept, patience, epochs = -np.inf, params, PATIENCE, 0
    while epochs <= MAX_EPOCHS:
        key, epoch_key = jax.random.split(key)
        params, state = _train(params, state, epoch_key, places["train"], wanted)
        epochs += EPOCHS
        correlation = sts.pearson(_predict(params, places["dev"]), gold["dev"])
        if correlation > best:
            best, kept = correlation, params
        elif patience == 0:
            break
        else:
            patience -= 1
    return _predict(kept, places["test"]), best, epochs


def _probabilities(params: Params, inputs: Float[Array, "P width"]) -> Float[Array, "P 5"]:
    logits = jnp.matmul(inputs, params["kernel"], precision="highest") + params["bias"]
    return jax.nn.softmax(logits)


def _predict(params: Params, inputs: Float[Array, "P width"]) -> Float64[np.ndarray, " P"]:
    return np.asarray(_probabilities(params, inputs), np.float64) @ np.arange(1, BINS + 1)


@functools.partial(jax.jit, donate_argnums=1)
def _train(
    params: Params, state: Any, key: Key[Array, ""], inputs: Float[Array, "P width"], wanted: Float[Array, "P 5"]
) -> tuple[Params, Any]:
    """`EPOCHS` epochs; rows that fill up the last batch of each have weight 0."""
    count = len(inputs)
    batches = -(-count // BATCH)
    filled = jnp.arange(batches * BATCH).reshape(batches, BATCH)

    def loss(params: Params, rows: Int[Array, " B"], weights: Float[Array, " B"]) -> Float[Array, ""]:
        errors = jnp.mean((_probabilities(params, inputs[rows]) - wanted[rows]) ** 2, axis=1)
        return jnp.sum(errors * weights) / jnp.sum(weights)

    def step(carry: Any, batch: Any) -> Any:
        params, state = carry
        updates, state = _optimizer.update(jax.grad(loss)(params, *batch), state)
        return (optax.apply_updates(params, updates), state), None

    def epoch(carry: Any, key: Key[Array, ""]) -> Any:
        order = jax.random.permutation(key, count)
        return jax.lax.scan(step, carry, (order[filled % count], (filled < count).astype(jnp.float32)))

    return jax.lax.scan(epoch, (params, state), jax.random.split(key, EPOCHS))[0]
