"""CoSENT: of two graded pairs, the one with the higher score must be the more similar one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import cosine, map_rows


def cosent(
    similarities: Float[AnyArray, " B"],
    scores: Float[AnyArray, " B"],
    all_similarities: Float[AnyArray, " N"],
    all_scores: Float[AnyArray, " N"],
    psum: Callable[[Any], Any],
    gather: Callable[[Array], Array],
    *,
    temperature: Float[AnyArray, ""] | float,
) -> Float[Array, ""]:
    """The CoSENT loss of the global batch.

        ℓ = log( 1 + Σ_{i,j: y_i > y_j} e^{(s_j − s_i) / τ} )

    over all pairs of pairs of the global batch, with s the similarity of a pair and y its score. Only the order of the
    scores counts; pairs with the same score are not compared. Huang et al. 2024, "CoSENT: Consistent Sentence
    Embedding via Similarity Ranking" (doi:10.1109/TASLP.2024.3402087); `CoSENTLoss` of sentence-transformers, whose
    `scale` is 1 / τ.
    """
    logits = all_similarities / temperature

    def rows(similarity: Float[AnyArray, " R"], score: Float[AnyArray, " R"]) -> Float[Array, " R"]:
        lower = all_scores < score[:, None]
        some = jnp.any(lower, axis=1)
        kept = jnp.where(lower | ~some[:, None], logits, -jnp.inf)  # a row without any stays finite, and its gradient
        return jnp.where(some, jax.nn.logsumexp(kept, axis=1) - similarity / temperature, -jnp.inf)

    row_sums = map_rows(rows, len(logits), similarities, scores)
    # The largest exponent of all devices; summed and divided, so that JAX knows it to be the same on all of them.
    largest = jnp.maximum(jnp.max(gather(jax.lax.stop_gradient(row_sums)[None])), 0.0)
    shift = psum(largest) / psum(1)
    return shift + jnp.log(jnp.exp(-shift) + psum(jnp.sum(jnp.exp(row_sums - shift))))


def cosent_of_batch(
    embedded: Embedded, similarities: Float[AnyArray, " B"], *, temperature: Float[AnyArray, ""] | float
) -> Float[Array, ""]:
    """`cosent` of a batch whose pairs have these similarities."""
    assert embedded.score is not None  # the objective declares that it needs them
    similarity, score = similarities, embedded.score
    all_own, all_scores = embedded.gather(jnp.stack([similarity, score]))
    return cosent(similarity, score, all_own, all_scores, embedded.psum, embedded.gather, temperature=temperature)


class CoSENT(declarations.CoSENT):
    """Pairs ranked by their cosine."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """`cosent` of the pairs' cosines and scores."""
        return cosent_of_batch(embedded, cosine(*embedded.pair), **fields)
