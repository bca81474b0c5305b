"""AnglE: pairs are ranked as by CoSENT, by a similarity of their embeddings as complex vectors."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.cosent import cosent_of_batch
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import normalize


def angle_similarity(first: Float[AnyArray, "B D"], second: Float[AnyArray, "B D"]) -> Float[Array, " B"]:
    """The similarity of AnglE, one number per pair.

        s(x, y) = | Σ_d Re(x̃_d ỹ_d*) + Im(x̃_d ỹ_d*) |,   x_d = x_d' + i x_{D/2+d}'

    with x̃ the vector of length 1: the cosine, and the sum of the sines of the halves, which keeps a gradient where the
    cosine has none. Li & Li 2024 (arXiv:2309.12871), section 3.4, in the form of their code and of
    sentence-transformers' `pairwise_angle_sim`; the paper's equation subtracts in the other order. `AnglELoss` is
    `cosent` with this similarity, from 0 to √2. An odd D gets a further column of zeros.
    """
    odd = ((0, 0), (0, first.shape[1] % 2))
    x, y = (normalize(jnp.pad(rows, odd)) for rows in (first, second))
    (real_x, imaginary_x), (real_y, imaginary_y) = (jnp.split(rows, 2, axis=1) for rows in (x, y))
    return jnp.abs(jnp.sum(x * y, axis=1) + jnp.sum(imaginary_x * real_y - real_x * imaginary_y, axis=1))


class AnglE(declarations.AnglE):
    """CoSENT with another similarity."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """`cosent` of the pairs' similarities and scores."""
        return cosent_of_batch(embedded, angle_similarity(*embedded.pair), **fields)
