"""Which candidates of the global batch are no negatives of an anchor: those that are missing, and equal texts."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.models.arrays import AnyArray

NO_ANCHOR = -1  # no text has this number


class Candidates(NamedTuple):
    """K kinds of N candidates, and which of them are left out of sums over negatives.

    Texts have numbers, equal texts the same one. Of an anchor a with the positive p, a candidate is left out

    - where the data lack it,
    - if its text is that of a or of p,
    - if it is the positive of an anchor with the text of a: another positive of the same anchor.
    """

    present: Bool[AnyArray, "K N"] | None = None  # False where the data lack a candidate; None: nowhere
    texts: Int[AnyArray, "K N"] | None = None  # None: equal texts are negatives like any others
    anchors: Int[AnyArray, "K N"] | None = None  # the text whose positive a candidate is, or `NO_ANCHOR`
    pairs: Int[AnyArray, "B 2"] | None = None  # the texts a and p of the local rows

    def left_out(self, pairs: Int[AnyArray, "R 2"] | None = None) -> Bool[Array, "*R K N"]:
        """Which candidates are no negatives of each row; `pairs` are the texts of some rows, None: of all."""
        missing = jnp.zeros((), bool) if self.present is None else jnp.logical_not(self.present)
        pairs = self.pairs if pairs is None else pairs
        if pairs is None or self.texts is None or self.anchors is None:
            return missing
        anchor, positive = pairs[:, :1, None], pairs[:, 1:, None]
        equal = jnp.equal(self.texts, anchor) | jnp.equal(self.texts, positive)
        return missing | equal | jnp.equal(self.anchors, anchor)

    def kept(
        self, logits: Float[AnyArray, "R KN"], positions: Int[AnyArray, " R"], pairs: Int[AnyArray, "R 2"] | None = None
    ) -> Float[Array, "R KN"]:
        """The logits of all candidates, kind after kind, -inf for those left out; each row's own positive stays.

        Args:
          logits: R rows; the positives are the first kind.
          positions: the place of each row's own positive.
          pairs: their texts, where they are some of the rows.
        """
        left_out = self.left_out(pairs)
        left_out = left_out.reshape(*left_out.shape[:-2], -1)
        return jnp.where(left_out & (positions[:, None] != jnp.arange(logits.shape[1])), -jnp.inf, logits)
