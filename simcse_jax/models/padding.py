"""The layout of a batch's tokens: in rows with padding, or one after the other without.

Apart from attention, a layer treats each token by itself. So layers take tokens in either layout, and ask the layout
for rows where they need them. Shapes: B sentences, T tokens of a row, N tokens in all, *F features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from simcse_jax.models.arrays import AnyArray, ArrayType


class Padded(NamedTuple):
    """(B, T, F): the rows unchanged."""

    length: int

    @property
    def positions(self) -> Int[Array, "1 T"]:
        """(1, T) positions in a sentence."""
        return jnp.arange(self.length)[None]

    def of_examples(self, values: Shaped[Array, " B *F"]) -> Shaped[Array, "B 1 *F"]:
        """(B, ...) values of the sentences, as one per token."""
        return values[:, None]

    def to_tokens(self, rows: Shaped[ArrayType, "B T *F"]) -> Shaped[ArrayType, "B T *F"]:
        """(B, T, ...) to this layout."""
        return rows

    def to_rows(self, tokens: Shaped[ArrayType, "B T *F"]) -> Shaped[ArrayType, "B T *F"]:
        """This layout to (B, T, ...)."""
        return tokens

    def first(self, tokens: Shaped[Array, "B T *F"]) -> Shaped[Array, "B 1 *F"]:
        """(B, 1, ...): each sentence's first token."""
        return tokens[:, :1]

    def with_first(self, tokens: Shaped[Array, "B T *F"], first: Shaped[Array, " B *F"]) -> Shaped[Array, "B T *F"]:
        """The tokens with other first ones."""
        return tokens.at[:, 0].set(first)


class Unpadded(NamedTuple):
    """(N, F): the tokens of all sentences, one after another. Places after the last token are unused.

    There may be more places (N) than tokens, so that one program can be compiled for all batches of a run.
    `to_tokens` and `to_rows` move gradients back by each other's table, without a scatter.
    """

    place: Int[Array, "B T"]  # (B, T): each token's place among the N; N for padding
    source: Int[Array, " N"]  # (N,): which of the B T tokens is in each place; B T after the last one

    @property
    def positions(self) -> Int[Array, " N"]:
        """(N,) positions in a sentence."""
        return self.source % self.place.shape[1]

    def of_examples(self, values: Shaped[Array, " B *F"]) -> Shaped[Array, " N *F"]:
        """(B, ...) values of the sentences, as one per token."""
        return values[jnp.minimum(self.source // self.place.shape[1], self.place.shape[0] - 1)]

    def to_tokens(self, rows: Shaped[AnyArray, "B T *F"]) -> Shaped[Array, " N *F"]:
        """(B, T, ...) to this layout; zeros in unused places."""
        return _move(rows.reshape(-1, *rows.shape[2:]), self.source, self.place.ravel())

    def to_rows(self, tokens: Shaped[Array, " N *F"]) -> Shaped[Array, "B T *F"]:
        """This layout to (B, T, ...); zeros at padding."""
        return _move(tokens, self.place.ravel(), self.source).reshape(*self.place.shape, *tokens.shape[1:])

    def first(self, tokens: Shaped[Array, " N *F"]) -> Shaped[Array, "B 1 *F"]:
        """(B, 1, ...): each sentence's first token."""
        return tokens[self.place[:, 0], None]

    def with_first(self, tokens: Shaped[Array, " N *F"], first: Shaped[Array, " B *F"]) -> Shaped[Array, " N *F"]:
        """The tokens with other first ones."""
        return tokens.at[self.place[:, 0]].set(first, mode="drop")


Layout = Padded | Unpadded
Tables = tuple[Int[Array, " N"], Int[Array, " M"]]


def unpadded(attention_mask: Int[AnyArray, "B T"], size: int) -> Unpadded:
    """The layout without padding of a (B, T) mask that has at most `size` tokens."""
    mask = attention_mask.ravel() > 0
    place = jnp.where(mask, jnp.cumsum(mask) - 1, size).reshape(attention_mask.shape)
    (source,) = jnp.nonzero(mask, size=size, fill_value=mask.size)
    return Unpadded(place, source)


@jax.custom_vjp
def _move(x: Shaped[AnyArray, " M *F"], source: Int[Array, " N"], back: Int[Array, " M"]) -> Shaped[Array, " N *F"]:
    """Rows `source` of `x`, zeros where it has none. `back` is the inverse, and also the transpose."""
    return jnp.asarray(x).at[source].get(mode="fill", fill_value=0)


def _move_backward(tables: Tables, gradient: Shaped[Array, " N *F"]) -> tuple[Shaped[Array, " M *F"], None, None]:
    source, back = tables
    return _move(gradient, back, source), None, None


_move.defvjp(lambda x, source, back: (_move(x, source, back), (source, back)), _move_backward)
