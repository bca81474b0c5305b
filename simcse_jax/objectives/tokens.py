"""What an objective's pass over tokens is handed: rows of a batch, their draws, and `encode`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, Key

from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.lazy import AnyArray, Array, jnp
from simcse_jax.objectives.views import MASKING, Plan, column_number

ENCODER, GENERATOR = "encoder", "generator"  # the names among networks of the sentence encoder, and of the frozen one

Sums = tuple[Float[AnyArray, " B"], Int[AnyArray, " B"]]  # for each row, the sum over its tokens and their number


class Network(NamedTuple):
    """A network that reads tokens."""

    config: EncoderConfig
    params: Mapping[str, Array]  # by their names in checkpoints, without the network's prefix


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The rows of a batch that are computed at a time. Several columns P of B rows are stacked into P · B rows."""

    plan: Plan
    read: Callable[[Sequence[int]], tuple[Int[Array, "PB T"], Int[Array, "PB T"]]]  # the ids and the mask of columns
    keys: Callable[[Sequence[int]], Key[Array, "V B"]]  # a key for each number and each row
    # encode(network, ids, columns, numbers, first=None) -> (PB, T, D) last hidden states of `ids`, which stand in the
    # places of P columns, under the dropout masks with these P numbers; `first` (PB, D) takes the place of the first
    # token's embedding.
    encode: Callable[..., Float[Array, "PB T D"]]
    networks: Mapping[str, Network]  # ENCODER, and those that the objective needs
    params: Mapping[str, Array]  # everything trained, by name
    fields: Mapping[str, Any]  # the objective's own numbers
    masking: Any  # what must be known of the tokenizer (`models.masking.Masking`); None: nothing is masked
    present: Bool[AnyArray, "B C"] | None = None  # False where the data lack a column's sentence; None: nowhere
    most_tokens: Callable[[Sequence[int]], int | None] = lambda columns: None  # of the columns' rows; None: not known
    # By the names of the objective's views: (M, B, T, D), the last layer under each of a view's M masks.
    features: Mapping[str, Float[Array, "M B T D"]] = dataclasses.field(default_factory=dict)

    def masked_columns(self, columns: Sequence[int]) -> tuple[Int[Array, "PB T"], Bool[Array, "PB T"]]:
        """The ids of P columns with 15% of them masked, as views with the change `masked`; and which are masked."""
        from simcse_jax.models.masking import mask_tokens
        from simcse_jax.models.parameters import WORD_EMBEDDING

        keys = self.keys([column_number(MASKING, column) for column in columns]).reshape(-1)
        words = len(self.params[WORD_EMBEDDING])
        return mask_tokens(keys, *self.read(columns), vocab_size=words, **self.masking._asdict())

    def sums(self, losses: Float[Array, "PB T"], counted: Bool[Array, "PB T"], columns: Sequence[int]) -> Sums:
        """The sums of losses of tokens over the P columns of each row, and the numbers of tokens that count.

        A sentence that stands in for a missing one does not count.
        """
        parts = jnp.where(counted, losses, 0.0), counted
        sums, counts = (jnp.sum(part, axis=1).reshape(len(columns), -1) for part in parts)  # (P, B)
        if self.present is not None:
            there = self.present.T[jnp.array(columns)]
            sums, counts = jnp.where(there, sums, 0.0), jnp.where(there, counts, 0)
        return jnp.sum(sums, axis=0), jnp.sum(counts, axis=0)
