"""Passes over tokens: the input of an objective's pass, and the networks that read the tokens."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.encoder import Encoder
from simcse_jax.objectives.rows import Rows
from simcse_jax.objectives.views import Plan

# The names among networks: the sentence encoder, the frozen one that writes words, and the one that finds these.
ENCODER, GENERATOR, DISCRIMINATOR = "encoder", "generator", "discriminator"

Sums = tuple[Float[AnyArray, " B"], Int[AnyArray, " B"]]  # for each row, the sum over its tokens and their number


class Network(NamedTuple):
    """A network that reads tokens."""

    encoder: Encoder
    params: Mapping[str, Array]  # by their names in checkpoints, without the network's prefix

    @property
    def config(self) -> EncoderConfig:
        """Its architecture."""
        return self.encoder.config


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The input of an objective's pass over tokens."""

    rows: Rows
    plan: Plan
    networks: Mapping[str, Network]  # ENCODER, and those that the objective needs
    params: Mapping[str, Array]  # everything trained, by name
    fields: Mapping[str, Any]  # the objective's own numbers
    # By the names of the objective's views: (M, B, T, D), the last layer under each of a view's M masks.
    features: Mapping[str, Float[Array, "M B T D"]] = dataclasses.field(default_factory=dict)

    def encode(
        self,
        network: str,
        ids: Int[Array, "PB T"],
        columns: Sequence[int],
        numbers: Sequence[int],
        first: Float[Array, "PB D"] | None = None,
    ) -> Float[Array, "PB T D"]:
        """The last hidden states of `ids`, which stand in the places of P columns.

        Args:
          network: its name.
          ids: of tokens.
          columns: P of them.
          numbers: of the dropout masks, P of them.
          first: takes the place of the first token's embedding.
        """
        rows, (_, mask) = self.rows, self.rows.read(columns)
        keys, most = rows.keys(numbers).reshape(-1), rows.most_tokens(columns)
        encoder = self.networks[network].encoder
        return encoder(ids, mask, dropout_keys=keys, **rows.rates(), most_tokens=most, first=first)[-1]

    def sums(self, losses: Float[Array, "PB T"], counted: Bool[Array, "PB T"], columns: Sequence[int]) -> Sums:
        """The sums of losses of tokens over the P columns of each row, and the numbers of tokens that count.

        A sentence that stands in for a missing one does not count.
        """
        parts = jnp.where(counted, losses, 0.0), counted
        sums, counts = (jnp.sum(part, axis=1).reshape(len(columns), -1) for part in parts)  # (P, B)
        if "present" in self.rows.batch:
            is_present = jnp.asarray(self.rows.batch["present"]).T[jnp.array(columns)]
            sums, counts = jnp.where(is_present, sums, 0.0), jnp.where(is_present, counts, 0)
        return jnp.sum(sums, axis=0), jnp.sum(counts, axis=0)
