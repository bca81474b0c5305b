"""Logistic regression: many fits on the same rows, which differ in their training rows and their penalties.

A fit minimizes over w (D, K) and b (K)

    1/n Σ_i ℓ(x_i w + b, y_i) + λ/2 ‖w‖²

over its n training rows, with the logistic loss ℓ (K = 1) for two classes and the multinomial one for more. With λ =
1 / (C n) that is the objective of scikit-learn's LogisticRegression(C=C), divided by C n. L-BFGS minimizes all fits
together: an iteration costs two matrix products of all rows with the directions of all fits; a row that a fit does not
train on has weight 0. Rows are centred, which the bias undoes, and rotated to their principal components, where the
Hessian is nearly diagonal: its diagonal is L-BFGS's first guess. Along a direction the logits are linear, so the line
search needs no product.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

TOLERANCE = 1e-6  # of the estimated distance to the minimum, in the unit of the mean loss
MAX_ITERATIONS = 500
MEMORY = 10  # pairs that L-BFGS keeps
MOST_LOGITS = 1 << 27  # of the fits that are solved together, which take seven arrays of this size: 3.5 GiB


def predict(
    inputs: Float[np.ndarray, "N D"],
    labels: Int[np.ndarray, " N"],
    masks: Bool[np.ndarray, "M N"],
    penalties: Float[np.ndarray, "M C"],
) -> Int[np.ndarray, "M C N"]:
    """Fits M × C classifiers, each of which predicts every row.

    A fit has converged when gᵀ H⁻¹ g / 2 ≤ 1e-6, with its gradient g and the diagonal H above, which estimates how far
    its objective is from the minimum. It computes in float32, with at most 500 iterations.

    Args:
      labels: (N,) classes from 0 to K - 1; those of rows that no fit trains on do not count.
    """
    centred = np.asarray(inputs, np.float64)
    centred = centred - centred.mean(axis=0)
    variances, components = np.linalg.eigh(centred.T @ centred / len(centred))
    rows = np.column_stack([centred @ components, np.ones(len(centred))])  # the bias is the last column
    variances = np.append(np.maximum(variances, 0), 1)
    classes = int(labels[masks.any(axis=0)].max()) + 1
    targets = labels[:, None] == (np.arange(classes) if classes > 2 else [1])
    together = max(1, MOST_LOGITS // (targets.size * penalties.shape[1]))

    def solve(masks: Bool[np.ndarray, "S N"], penalties: Float[np.ndarray, "S C"]) -> Int[np.ndarray, "S C N"]:
        arrays = (rows, variances, targets, masks / masks.sum(axis=1, keepdims=True), penalties)
        logits = np.asarray(_fit(*(jnp.asarray(array, jnp.float32) for array in arrays)))
        return (logits[:, 0] > 0 if classes == 2 else logits.argmax(axis=1)).T.astype(np.int64)

    parts = [slice(start, start + together) for start in range(0, len(masks), together)]
    return np.concatenate([solve(masks[part], penalties[part]) for part in parts])


class _Objective(NamedTuple):
    """The objectives of all fits, M × C. The longest axis of a row is the last one, as vector units need it."""

    rows: Float[Array, "N D"]
    variances: Float[Array, " D"]
    targets: Float[Array, "N K 1 1"]
    weights: Float[Array, "N 1 1 M"]
    penalties: Float[Array, "D 1 C M"]  # 0 for the bias

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, C, M: the classes, the penalties and the masks."""
        _, _, choices, fits = self.penalties.shape
        return self.targets.shape[1], choices, fits

    def times(self, matrix: Float[Array, "R S"], array: Float[Array, "S K C M"]) -> Float[Array, "R K C M"]:
        """The matrix product with each fit's own part of an array."""
        product = jnp.matmul(matrix, array.reshape(len(array), -1), precision="highest")
        return product.reshape(-1, *self.shape)

    def probabilities(self, logits: Float[Array, "N K C M"]) -> Float[Array, "N K C M"]:
        """The probabilities of the classes."""
        return jax.nn.softmax(logits, axis=1) if self.shape[0] > 1 else jax.nn.sigmoid(logits)

    def gradient(
        self, params: Float[Array, "D K C M"], logits: Float[Array, "N K C M"]
    ) -> tuple[Float[Array, "D K C M"], Float[Array, "D K C M"]]:
        """The gradient, and the inverse of the Hessian's approximate diagonal."""
        p = self.probabilities(logits)
        curvature = jnp.sum(self.weights * p * (1 - p), axis=0, keepdims=True)
        inverse = 1 / jnp.maximum(curvature * self.variances[:, None, None, None] + self.penalties, 1e-12)
        return self.times(self.rows.T, self.weights * (p - self.targets)) + self.penalties * params, inverse

    def derivatives(
        self, step: jax.Array | float, params: jax.Array, logits: jax.Array, direction: jax.Array, change: jax.Array
    ) -> tuple[Float[Array, "1 1 C M"], Float[Array, "1 1 C M"]]:
        """The first and the second derivative by the step along a direction, whose logits are `change`."""
        p = self.probabilities(logits + step * change)
        centre = jnp.sum(p * change, axis=1, keepdims=True) if self.shape[0] > 1 else p * change
        spread = p * change * (change - centre)
        penalized = self.penalties * direction
        first = _dot(self.weights * (p - self.targets), change) + _dot(penalized, params + step * direction)
        second = _dot(self.weights, spread) + _dot(penalized, direction)
        return first, jnp.maximum(second, 1e-30)

    def line_search(self, *line: jax.Array) -> Float[Array, "1 1 C M"]:
        """Two steps of Newton's method; the second one is limited by the first."""
        first, second = self.derivatives(0.0, *line)
        step = -first / second
        first, second = self.derivatives(step, *line)
        return jnp.clip(step - first / second, 0.1 * step, 4 * step)


@jax.jit
def _fit(
    rows: Float[Array, "N D"],
    variances: Float[Array, " D"],
    targets: Float[Array, "N K"],
    weights: Float[Array, "M N"],
    penalties: Float[Array, "M C"],
) -> Float[Array, "N K C M"]:
    """(N, D), (D,), (N, K), (M, N), (M, C) to the logits (N, K, C, M) of the converged fits."""
    count, width = rows.shape
    weights, targets = weights.T[:, None, None, :], targets[:, :, None, None]
    penalties = jnp.where((jnp.arange(width) < width - 1)[:, None, None, None], penalties.T, 0.0)
    objective = _Objective(rows, variances, targets, weights, penalties)

    def iterate(carry: tuple) -> tuple:
        number, params, logits, slope, inverse, gap, steps, changes, scales = carry
        direction = _newton_like(slope, inverse, steps, changes, scales)
        direction = jnp.where(gap > TOLERANCE, -direction, 0)  # fits that have converged do not move
        along = objective.times(rows, direction)
        length = objective.line_search(params, logits, direction, along)
        step = length * direction
        params, logits = params + step, logits + length * along
        before, (slope, inverse) = slope, objective.gradient(params, logits)
        product = _dot(step, slope - before)
        scale = jnp.where(product > 0, 1 / jnp.where(product > 0, product, 1), 0)
        memory = ((step, *steps[:-1]), (slope - before, *changes[:-1]), (scale, *scales[:-1]))
        return number + 1, params, logits, slope, inverse, distance(slope, inverse), *memory

    def distance(slope: jax.Array, inverse: jax.Array) -> jax.Array:
        return _dot(slope * inverse, slope) / 2

    params = jnp.zeros((width, *objective.shape))
    logits = jnp.broadcast_to(rows[:, :1, None, None] * 0, (count, *objective.shape))  # XLA would fold zeros
    slope, inverse = objective.gradient(params, logits)
    gap = distance(slope, inverse)
    memory = (jnp.zeros_like(params),) * MEMORY, (jnp.zeros_like(params),) * MEMORY, (jnp.zeros_like(gap),) * MEMORY

    def unfinished(carry: tuple) -> jax.Array:
        return (carry[0] < MAX_ITERATIONS) & jnp.any(carry[5] > TOLERANCE)

    return jax.lax.while_loop(unfinished, iterate, (0, params, logits, slope, inverse, gap, *memory))[2]


def _dot(first: Float[Array, " N #K #C M"], second: Float[Array, " N #K #C M"]) -> Float[Array, "1 1 C M"]:
    """The dot products of two arrays, fit by fit."""
    return jnp.sum(first * second, axis=(0, 1), keepdims=True)


def _newton_like(
    slope: Float[Array, "D K C M"],
    inverse: Float[Array, "D K C M"],
    steps: tuple[Float[Array, "D K C M"], ...],
    changes: tuple[Float[Array, "D K C M"], ...],
    scales: tuple[Float[Array, "1 1 C M"], ...],
) -> Float[Array, "D K C M"]:
    """The two loops of L-BFGS (Nocedal and Wright, Algorithm 7.4): about the inverse Hessian times the slope.

    `steps`, the `changes` of the slope over them and `scales` = 1 / (step · change) are earlier ones, the latest first.
    """
    direction, shares = slope, []
    for step, change, scale in zip(steps, changes, scales, strict=True):
        shares.append(scale * _dot(step, direction))
        direction = direction - shares[-1] * change
    direction = inverse * direction
    for step, change, scale, share in reversed(list(zip(steps, changes, scales, shares, strict=True))):
        direction = direction + (share - scale * _dot(change, direction)) * step
    return direction
