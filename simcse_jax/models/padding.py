"""Where the tokens of a batch lie: in rows with padding, or one after the other without.

All that a layer does is done token by token, attention alone excepted. So layers see tokens in either layout and ask it
for rows where they need them. Shapes: B sentences, T tokens of a row, N tokens in all, F features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Padded(NamedTuple):
    """(B, T, F): rows, as they come."""

    length: int

    @property
    def positions(self) -> jax.Array:
        """(1, T) positions in a sentence."""
        return jnp.arange(self.length)[None]

    def of_examples(self, values: jax.Array) -> jax.Array:
        """(B,) values of the sentences, one a token."""
        return values[:, None]

    def to_tokens(self, rows: jax.Array) -> jax.Array:
        """(B, T, ...) to this layout."""
        return rows

    def to_rows(self, tokens: jax.Array) -> jax.Array:
        """This layout to (B, T, ...)."""
        return tokens

    def first(self, tokens: jax.Array) -> jax.Array:
        """(B, 1, ...): each sentence's first token."""
        return tokens[:, :1]


class Unpadded(NamedTuple):
    """(N, F): the tokens of one sentence behind those of the one before. What is left over at the end is no token's.

    The N places may be more than there are tokens, so that a program can be compiled for all batches of a run.
    `to_tokens` and `to_rows` move gradients back by the other one's table, without a scatter.
    """

    place: jax.Array  # (B, T): where a token of a row lies among the N; N for padding
    source: jax.Array  # (N,): which of the B T tokens lies there; B T behind the last one

    @property
    def positions(self) -> jax.Array:
        """(N,) positions in a sentence."""
        return self.source % self.place.shape[1]

    def of_examples(self, values: jax.Array) -> jax.Array:
        """(B,) values of the sentences, one a token."""
        return values[jnp.minimum(self.source // self.place.shape[1], self.place.shape[0] - 1)]

    def to_tokens(self, rows: jax.Array) -> jax.Array:
        """(B, T, ...) to this layout; zeros at what is no token's."""
        return _move(rows.reshape(-1, *rows.shape[2:]), self.source, self.place.ravel())

    def to_rows(self, tokens: jax.Array) -> jax.Array:
        """This layout to (B, T, ...); zeros at padding."""
        return _move(tokens, self.place.ravel(), self.source).reshape(*self.place.shape, *tokens.shape[1:])

    def first(self, tokens: jax.Array) -> jax.Array:
        """(B, 1, ...): each sentence's first token."""
        return tokens[self.place[:, 0], None]


Layout = Padded | Unpadded


def unpadded(attention_mask: jax.Array, size: int) -> Unpadded:
    """The layout without padding of a (B, T) mask that has at most `size` tokens."""
    mask = attention_mask.ravel() > 0
    place = jnp.where(mask, jnp.cumsum(mask) - 1, size).reshape(attention_mask.shape)
    (source,) = jnp.nonzero(mask, size=size, fill_value=mask.size)
    return Unpadded(place, source)


@jax.custom_vjp
def _move(x: jax.Array, there: jax.Array, back: jax.Array) -> jax.Array:
    """Rows `there` of `x`, zeros where it has none. `back` undoes it, which is its transpose too."""
    return jnp.asarray(x).at[there].get(mode="fill", fill_value=0)


def _move_forward(x: jax.Array, there: jax.Array, back: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _move(x, there, back), (there, back)


def _move_backward(tables: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None, None]:
    there, back = tables
    return _move(gradient, back, there), None, None


_move.defvjp(_move_forward, _move_backward)
