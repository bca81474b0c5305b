"""Barlow Twins, as SimCSE++ studies it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded

EPSILON = 1e-5  # that PyTorch's batch norm adds to a variance


def barlow_twins(
    first: Float[AnyArray, "B D"],
    second: Float[AnyArray, "B D"],
    artificial: Float[AnyArray, "M D"],
    psum: Callable[[Array], Array],
    *,
    off_diagonal_weight: Float[AnyArray, ""] | float,
    reading: str = "paper",
) -> Float[Array, ""]:
    """Barlow Twins: pulls the cross-correlation matrix of two views towards the identity.

        ℓ = Σ_c (1 − C_cc)² + λ_BT Σ_c Σ_{d≠c} C_cd²

    SimCSE++ equation 4 (Zbontar et al. 2021, arXiv:2103.03230, equation 1), C being `cross_correlation`. The minus
    sign that SimCSE++ prints before the first sum is a misprint: the loss pulls the diagonal to 1.

    The paper gives neither λ_BT nor the weight of this loss, and its equation is not centred. Its authors' code
    (`scd_loss` in simcse/models_re_vicreg.py) normalizes both views as a batch norm does, and has λ_BT = 0.012 and the
    weight 0.1. So there are two readings of C; λ_BT and the weight are fields of their own.

    `artificial` rows of N(0, 1) are the same on every device and counted once; M may be 0.
    """
    correlation = cross_correlation(first, second, artificial, psum, reading)
    diagonal = jnp.diagonal(correlation)
    off_diagonal = jnp.where(jnp.eye(len(diagonal), dtype=bool), 0.0, correlation)
    return jnp.sum((1 - diagonal) ** 2) + off_diagonal_weight * jnp.sum(off_diagonal**2)


def cross_correlation(
    first: Float[AnyArray, "B D"],
    second: Float[AnyArray, "B D"],
    artificial: Float[AnyArray, "M D"],
    psum: Callable[[Array], Array],
    reading: str = "paper",
) -> Float[Array, "D D"]:
    """The correlation of each dimension of one view with each of the other, over the global batch.

        C_cd = Σ_i z¹_ic z²_id / ( √Σ_i (z¹_ic)² √Σ_i (z²_id)² )

    i runs over the N sentences of the global batch and the M artificial ones of Section 4.2, which raise the rank
    that C can have from N to N + M. The same artificial rows are appended to both views: with different ones, the
    diagonal could not become 1.

    - `paper`: as in SimCSE++'s equation 4, the correlation is not centred. A dimension that is zero in all rows
      correlates with none, and its gradient is zero.
    - `released`: C = BN(z¹)ᵀ BN(z²) / (N + M), BN being PyTorch's batch norm without scale and shift over all N + M
      rows: z less its mean, over the square root of its variance (over N + M) plus 1e-5. So each z in the equation is
      centred, and the sums under the roots have (N + M) · 1e-5 added. Centring takes one from the rank.
    """
    count = psum(jnp.float32(len(first))) + len(artificial)

    def columns(x: Float[AnyArray, "B D"]) -> tuple[Float[AnyArray, "B D"], Float[AnyArray, "M D"], Float[Array, " D"]]:
        """The local and the artificial rows, centred or not, and the inverse norms of their columns."""
        rows, more_rows, added = x, artificial, jnp.zeros(())
        if reading == "released":
            mean = (psum(jnp.sum(x, axis=0)) + jnp.sum(artificial, axis=0)) / count
            rows, more_rows, added = x - mean, artificial - mean, EPSILON * count
        squares = psum(jnp.sum(rows * rows, axis=0)) + jnp.sum(more_rows * more_rows, axis=0) + added
        # The inner `where` keeps the gradient finite.
        return rows, more_rows, jnp.where(squares > 0, jax.lax.rsqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)

    (first_rows, one_more, one_inverse), (two, two_more, two_inverse) = columns(first), columns(second)
    product = psum(jnp.matmul(first_rows.T, two)) + one_more.T @ two_more
    return product * one_inverse[:, None] * two_inverse


class BarlowTwins(declarations.BarlowTwins):
    """Decorrelated dimensions of two views, also one half of SCD's objective."""

    def loss(self, embedded: Embedded, *, artificial: int, **fields: Any) -> Float[Array, ""]:
        """`barlow_twins` of the pairs."""
        first, second = embedded.pair
        return barlow_twins(first, second, embedded.artificial(artificial, first.shape[1]), embedded.psum, **fields)
