"""SentEval's PyTorch classifier: a softmax on frozen inputs, trained until held-out accuracy stops rising.

For a row x (D,) of K classes, with the weights W (K, D) and the biases b (K,):

    p = softmax(W x + b),    loss = mean over a batch of -log p_y,    gradients + λ W and + λ b

A round is `epochs` epochs, the last batch of an epoch smaller. After each round the held-out rows are scored. The first
parameters with the best accuracy are kept. Training ends at round `tenacity` + 1, in all, that does not beat the best
one, or when more than 200 epochs are done. Every classifier has PyTorch's first weights and NumPy's order of rows after
seed 1111, bit for bit (docs/background/papers.md). Those of all penalties λ are trained in one compiled program.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Float32, Int, Int32

from simcse_jax.errors import UserError

SEED = 1111
MOST_EPOCHS = 200  # another round begins while no more are done
HELD_OUT = 0.05  # of the training rows, where no others choose the epoch


class ClassifierTraining(NamedTuple):
    """How classifiers are trained; see the module's docstring."""

    optimizer: optax.GradientTransformation
    batch: int
    epochs: int  # of a round
    tenacity: int
    folds: int

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""
        return MOST_EPOCHS // self.epochs + 1


SETTINGS = {
    "pytorch": ClassifierTraining(optax.adam(1e-3), batch=64, epochs=4, tenacity=5, folds=10),
    "pytorch_fast": ClassifierTraining(
        optax.rmsprop(1e-2, decay=0.99, eps=1e-8, eps_in_sqrt=False), batch=128, epochs=2, tenacity=3, folds=5
    ),
}


class RowSplit(NamedTuple):
    """The rows that a classifier is trained on, in the order that its permutations permute, and those held out."""

    train: Int[np.ndarray, " n"]
    held_out: Int[np.ndarray, " m"]
    drawn: int = 0  # the length of a permutation that was drawn before the training's


class Fitted(NamedTuple):
    """Classifiers, one for each of C penalties."""

    predicted: Int[np.ndarray, "C N"]  # classes of all rows
    accuracy: Float[np.ndarray, " C"]  # of the held-out rows, from 0 to 1


def masked_split(train: Bool[np.ndarray, " N"], held_out: Bool[np.ndarray, " N"]) -> RowSplit:
    """A split with held-out rows of its own: masks (N,)."""
    return RowSplit(np.flatnonzero(train), np.flatnonzero(held_out))


def random_split(train: Bool[np.ndarray, " N"]) -> RowSplit:
    """A split that holds out a twentieth of the training rows, at random: a mask (N,)."""
    rows = np.flatnonzero(train)
    rows = rows[np.random.RandomState(SEED).permutation(len(rows))]
    cut = int(HELD_OUT * len(rows))
    if not cut:
        raise UserError(
            f"{len(rows)} sentences to train a classifier on, of which this transfer protocol holds out a twentieth; "
            "it needs 20 or more"
        )
    return RowSplit(rows[cut:], rows[:cut], drawn=len(rows))


class Classifier:
    """The classifier of one task: its rows, first weights and orders."""

    def __init__(
        self,
        inputs: Float[np.ndarray, "N D"],
        labels: Int[np.ndarray, " N"],
        classes: int,
        splits: Sequence[RowSplit],
        settings: ClassifierTraining = SETTINGS["pytorch"],
    ):
        """Takes the rows of a task with so many classes, and all splits that will be fit in one compiled program."""
        self._settings, batch = settings, settings.batch
        weights, biases = linear(inputs.shape[1], classes, SEED)
        self._first = {"weights": jnp.asarray(weights), "biases": jnp.asarray(biases)}
        self._inputs = jnp.asarray(inputs, jnp.float32)
        self._labels = jnp.asarray(labels, jnp.int32)
        self._rooms = [-(-max(map(len, rows)) // batch) * batch for rows in list(zip(*splits, strict=True))[:2]]
        self._orders: dict[tuple[int, int], jax.Array] = {}

    def fit(self, split: RowSplit, penalties: Sequence[float]) -> Fitted:
        """Trains a classifier for each penalty λ."""
        train, held_out = (
            jnp.asarray(np.pad(rows, (0, room - len(rows))), jnp.int32)
            for rows, room in zip(split[:2], self._rooms, strict=True)
        )
        sizes = jnp.array([len(split.train), len(split.held_out)], jnp.int32)
        decays = jnp.asarray(penalties, jnp.float32)
        data = (self._inputs, self._labels, train, held_out, sizes, self._order(split))
        logits, hits = _fit(self._settings, self._first, data, decays)
        if not bool(jnp.all(jnp.isfinite(logits))):
            raise UserError("the classifier of the embeddings diverges; their values are too large")
        return Fitted(np.asarray(logits.argmax(-1)).T, np.asarray(hits, np.float64) / len(split.held_out))

    def _order(self, split: RowSplit) -> Int32[Array, "epochs room"]:
        key = (split.drawn, len(split.train))
        if key not in self._orders:
            generator = np.random.RandomState(SEED)
            if split.drawn:
                generator.permutation(split.drawn)
            epochs = self._settings.rounds * self._settings.epochs
            order = np.stack([generator.permutation(len(split.train)).astype(np.int32) for _ in range(epochs)])
            self._orders[key] = jnp.asarray(np.pad(order, ((0, 0), (0, self._rooms[0] - len(split.train)))))
        return self._orders[key]


class _Carry(NamedTuple):
    rounds: jax.Array
    params: dict[str, jax.Array]  # weights (C·K, D), biases (C·K,)
    optimizer: Any
    best: jax.Array  # (C,) the most held-out rows that were right
    kept: dict[str, jax.Array]  # the parameters then
    failures: jax.Array  # (C,)
    stopped: jax.Array  # (C,) bool

    def after(self, params: dict[str, jax.Array], optimizer: Any, hits: jax.Array, tenacity: int) -> "_Carry":
        """The state after a round that ended with these parameters and so many hits (C,) on held-out rows."""
        better = (hits > self.best) & ~self.stopped
        failed = ~better & ~self.stopped
        chosen = jnp.repeat(better, len(params["biases"]) // len(hits))
        return _Carry(
            self.rounds + 1,
            params,
            optimizer,
            jnp.where(better, hits, self.best),
            {
                "weights": jnp.where(chosen[:, None], params["weights"], self.kept["weights"]),
                "biases": jnp.where(chosen, params["biases"], self.kept["biases"]),
            },
            self.failures + failed,
            self.stopped | (failed & (self.failures >= tenacity)),
        )


@functools.partial(jax.jit, static_argnums=0)
def _fit(
    settings: ClassifierTraining,
    first: dict[str, jax.Array],
    data: tuple[jax.Array, ...],
    penalties: Float[Array, " C"],
) -> tuple[Float[Array, "N C K"], Int[Array, " C"]]:
    """The logits of all rows, and the number of held-out rows that are right.

    `data` are rows (N, D), labels (N,), the padded rows to train on and held out, the numbers of both, and the order of
    each epoch. The numbers are arguments of the program, so folds of different sizes share it.
    """
    rows, labels, train, held_out, (count, held_out_count), orders = data
    batch, epochs = settings.batch, settings.epochs
    choices, classes = len(penalties), len(first["biases"])
    targets = jax.nn.one_hot(labels, classes)
    decay = jnp.repeat(penalties, classes)

    def logits(params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
        products = jnp.matmul(inputs, params["weights"].T, precision="highest") + params["biases"]
        return products.reshape(len(inputs), choices, classes)

    def step(number: jax.Array, carry: Any, order: jax.Array) -> Any:
        params, state = carry
        places = number * batch + jnp.arange(batch)
        batch_rows = train[jax.lax.dynamic_slice_in_dim(order, number * batch, batch)]
        share = jnp.where(places < count, 1 / jnp.minimum(batch, count - number * batch), 0.0)
        inputs = rows[batch_rows]
        errors = share[:, None, None] * (jax.nn.softmax(logits(params, inputs)) - targets[batch_rows][:, None])
        errors = errors.reshape(batch, -1)
        gradients = {
            "weights": jnp.matmul(errors.T, inputs, precision="highest") + decay[:, None] * params["weights"],
            "biases": errors.sum(0) + decay * params["biases"],
        }
        updates, state = settings.optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state

    def epoch(number: jax.Array, carry: Any) -> Any:
        return jax.lax.fori_loop(0, -(-count // batch), functools.partial(step, order=orders[number]), carry)

    def one_round(carry: _Carry) -> _Carry:
        start = carry.rounds * epochs
        params, optimizer = jax.lax.fori_loop(start, start + epochs, epoch, (carry.params, carry.optimizer))
        right = logits(params, rows[held_out]).argmax(-1) == labels[held_out][:, None]
        hits = jnp.sum(right & (jnp.arange(len(held_out)) < held_out_count)[:, None], axis=0)
        return carry.after(params, optimizer, hits, settings.tenacity)

    def unfinished(carry: _Carry) -> jax.Array:
        return (carry.rounds < settings.rounds) & ~jnp.all(carry.stopped)

    params = {"weights": jnp.tile(first["weights"], (choices, 1)), "biases": jnp.tile(first["biases"], choices)}
    nothing = jnp.zeros(choices, jnp.int32)
    start = _Carry(jnp.int32(0), params, settings.optimizer.init(params), nothing - 1, params, nothing, nothing > 0)
    end = jax.lax.while_loop(unfinished, one_round, start)
    return logits(end.kept, rows), end.best


def linear(
    inputs: int, outputs: int, seed: int
) -> tuple[Float32[np.ndarray, "outputs inputs"], Float32[np.ndarray, " outputs"]]:
    """The first values of `torch.nn.Linear(inputs, outputs)` after `torch.manual_seed(seed)`, bit for bit.

    Weights, then biases, are uniform within b = ±1/√inputs: 2 b x - b with x = r / 2²⁴, r the last 24 bits of a draw.
    """

    def uniform(draws: np.ndarray, bound: float) -> Float32[np.ndarray, " N"]:
        bound = float(np.float32(bound))
        return ((draws & 0xFFFFFF) / 2.0**24 * (2 * bound) - bound).astype(np.float32)

    draws = np.random.RandomState(seed).randint(0, 1 << 32, (inputs + 1) * outputs, dtype=np.uint32)
    # PyTorch has √3 · √(1/3) / √inputs for the weights and 1 / √inputs for the biases, both rounded to float32.
    gain = np.sqrt(2 / (1 + np.sqrt(5) ** 2))
    weights = uniform(draws[: inputs * outputs], np.sqrt(3.0) * (gain / np.sqrt(inputs)))
    return weights.reshape(outputs, inputs), uniform(draws[inputs * outputs :], 1 / np.sqrt(inputs))
