"""Barlow Twins, as SimCSE++ studies it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.objective import Embedded, Objective


def barlow_twins(
    first: Float[AnyArray, "B D"],
    second: Float[AnyArray, "B D"],
    artificial: Float[AnyArray, "M D"],
    psum: Callable[[jax.Array], jax.Array],
    *,
    off_diagonal_weight: Float[AnyArray, ""] | float,
) -> Float[Array, ""]:
    """Barlow Twins: pulls the cross-correlation matrix of two views towards the identity.

        ℓ = Σ_c (1 − C_cc)² + λ_BT Σ_c Σ_{d≠c} C_cd²

    SimCSE++ equation 4 (Zbontar et al. 2021, arXiv:2103.03230, equation 1), C being `cross_correlation`. The minus
    sign that SimCSE++ prints before the first sum is a misprint: the loss pulls the diagonal to 1.

    Args:
      first: (B, D) z¹, the local rows.
      second: (B, D) z² of the same rows.
      artificial: (M, D) rows of N(0, 1), the same on every device and counted once; M may be 0.
      psum: sums an array over the devices; the identity when all rows are local.
      off_diagonal_weight: λ_BT.

    Returns:
      The loss of the global batch, a scalar, the same on every device.
    """
    correlation = cross_correlation(first, second, artificial, psum)
    diagonal = jnp.diagonal(correlation)
    off_diagonal = jnp.where(jnp.eye(len(diagonal), dtype=bool), 0.0, correlation)
    return jnp.sum((1 - diagonal) ** 2) + off_diagonal_weight * jnp.sum(off_diagonal**2)


def cross_correlation(
    first: Float[AnyArray, "B D"],
    second: Float[AnyArray, "B D"],
    artificial: Float[AnyArray, "M D"],
    psum: Callable[[jax.Array], jax.Array],
) -> Float[Array, "D D"]:
    """The correlation of each dimension of one view with each of the other, over the global batch.

        C_cd = Σ_i z¹_ic z²_id / ( √Σ_i (z¹_ic)² √Σ_i (z²_id)² )

    As in SimCSE++'s equation 4, the correlation is not centred. i runs over the N sentences of the global batch
    and the M artificial ones of Section 4.2, which raise the rank that C can have from N to N + M. The same artificial
    rows are appended to both views: with different ones, the diagonal could not become 1.

    A dimension that is zero in all rows correlates with none, and its gradient is zero.

    Args: as for `barlow_twins`.

    Returns:
      (D, D), the same on every device.
    """
    own = jnp.sum(artificial * artificial, axis=0)

    def inverse_norms(x: Float[AnyArray, "B D"]) -> Float[Array, " D"]:  # of the columns
        squares = psum(jnp.sum(x * x, axis=0)) + own
        # The inner `where` keeps the gradient finite.
        return jnp.where(squares > 0, jax.lax.rsqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)

    product = psum(jnp.matmul(first.T, second)) + artificial.T @ artificial
    return product * inverse_norms(first)[:, None] * inverse_norms(second)


def _term(embedded: Embedded, *, artificial: int, **fields: Any) -> Float[Array, ""]:
    return barlow_twins(*embedded.pair, embedded.artificial(artificial), embedded.psum, **fields)


OBJECTIVE = Objective(_term)
