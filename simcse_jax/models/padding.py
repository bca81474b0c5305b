"""Where the tokens of a batch lie: in rows with padding, or one after the other without.

All that a layer does is done token by token, attention alone excepted. So layers see tokens in either layout and ask it
for rows where they need them. Shapes: B sentences, T tokens of a row, N tokens in all, *F features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from simcse_jax.models.arrays import AnyArray


class Padded(NamedTuple):
    """(B, T, F): rows, as they come."""

    length: int

    @property
    def positions(self) -> Int[Array, "1 T"]:
        """(1, T) positions in a sentence."""
        return jnp.arange(self.length)[None]

    def of_examples(self, values: Shaped[Array, " B"]) -> Shaped[Array, "B 1"]:
        """(B,) values of the sentences, one a token."""
        return values[:, None]

    def to_tokens(self, rows: Shaped[AnyArray, "B T *F"]) -> Shaped[AnyArray, "B T *F"]:
        """(B, T, ...) to this layout."""
        return rows

    def to_rows(self, tokens: Shaped[AnyArray, "B T *F"]) -> Shaped[AnyArray, "B T *F"]:
        """This layout to (B, T, ...)."""
        return tokens

    def first(self, tokens: Shaped[AnyArray, "B T *F"]) -> Shaped[AnyArray, "B 1 *F"]:
        """(B, 1, ...): each sentence's first token."""
        return tokens[:, :1]


class Unpadded(NamedTuple):
    """(N, F): the tokens of one sentence after those of the one before. What is left over at the end is no token's.

    The N places may be more than there are tokens, so that a program can be compiled for all batches of a run.
    `to_tokens` and `to_rows` move gradients back by the other one's table, without a scatter.
    """

    place: Int[Array, "B T"]  # (B, T): where a token of a row lies among the N; N for padding
    source: Int[Array, " N"]  # (N,): which of the B T tokens lies there; B T after the last one

    @property
    def positions(self) -> Int[Array, " N"]:
        """(N,) positions in a sentence."""
        return self.source % self.place.shape[1]

    def of_examples(self, values: Shaped[Array, " B"]) -> Shaped[Array, " N"]:
        """(B,) values of the sentences, one a token."""
        return values[jnp.minimum(self.source // self.place.shape[1], self.place.shape[0] - 1)]

    def to_tokens(self, rows: Shaped[AnyArray, "B T *F"]) -> Shaped[Array, " N *F"]:
        """(B, T, ...) to this layout; zeros at what is no token's."""
        return _move(rows.reshape(-1, *rows.shape[2:]), self.source, self.place.ravel())

    def to_rows(self, tokens: Shaped[Array, " N *F"]) -> Shaped[Array, "B T *F"]:
        """This layout to (B, T, ...); zeros at padding."""
        return _move(tokens, self.place.ravel(), self.source).reshape(*self.place.shape, *tokens.shape[1:])

    def first(self, tokens: Shaped[Array, " N *F"]) -> Shaped[Array, "B 1 *F"]:
        """(B, 1, ...): each sentence's first token."""
        return tokens[self.place[:, 0], None]


Layout = Padded | Unpadded
Tables = tuple[Int[Array, " N"], Int[Array, " M"]]


def unpadded(attention_mask: Int[AnyArray, "B T"], size: int) -> Unpadded:
    """The layout without padding of a (B, T) mask that has at most `size` tokens."""
    mask = attention_mask.ravel() > 0
    place = jnp.where(mask, jnp.cumsum(mask) - 1, size).reshape(attention_mask.shape)
    (source,) = jnp.nonzero(mask, size=size, fill_value=mask.size)
    return Unpadded(place, source)


@jax.custom_vjp
def _move(x: Shaped[AnyArray, " M *F"], there: Int[Array, " N"], back: Int[Array, " M"]) -> Shaped[Array, " N *F"]:
    """Rows `there` of `x`, zeros where it has none. `back` undoes it, which is its transpose too."""
    return jnp.asarray(x).at[there].get(mode="fill", fill_value=0)


def _move_forward(
    x: Shaped[AnyArray, " M *F"], there: Int[Array, " N"], back: Int[Array, " M"]
) -> tuple[Shaped[Array, " N *F"], Tables]:
    return _move(x, there, back), (there, back)


def _move_backward(tables: Tables, gradient: Shaped[Array, " N *F"]) -> tuple[Shaped[Array, " M *F"], None, None]:
    there, back = tables
    return _move(gradient, back, there), None, None


_move.defvjp(_move_forward, _move_backward)
