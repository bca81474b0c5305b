"""The rows of a batch that are encoded at a time, and the keys of all that is drawn for them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Integer, Key

from simcse_jax.models.arrays import AnyArray

# input_ids, attention_mask: (B, C, T); index: (B,) in the global batch; label, score: (B,); present: (B, C), see
# `Corpus`; teacher: (B, C, E)
Batch = dict[str, AnyArray]
Settings = dict[str, Any]  # a pytree of scalars: changing one recompiles nothing


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a batch that are encoded at a time, and the keys of everything that is drawn for each of them."""

    batch: Batch
    step: Int[AnyArray, ""]
    settings: Settings
    column_tokens: tuple[int, ...]  # see `loss.Recipe.most_tokens`
    drops_attention: bool = True  # see `loss.Recipe`

    def keys(self, numbers: Sequence[int]) -> Key[Array, "V B"]:
        """A key for each number and each row."""
        return dropout_keys(self.settings["seed"], self.step, self.batch["index"], numbers)

    def rates(self, name: str = "dropout") -> dict[str, Any]:
        """The encoder's arguments for the dropout rate of that name, and attention's and LoRA's if they have others."""
        others = {f"{part}_dropout_rate": self.settings.get(f"{part}_dropout") for part in ("attention", "lora")}
        if not self.drops_attention:
            others["attention_dropout_rate"] = 0.0
        return {"dropout_rate": self.settings[name]} | others

    def tokens(self, columns: Sequence[int], length: int = 0) -> tuple[Int[Array, "PB T"], Int[Array, "PB T"]]:
        """The ids and the mask of P columns, stacked into P · B rows of T tokens, the first `length`; 0: all."""
        parts = self.batch["input_ids"], self.batch["attention_mask"]
        ids, mask = (jnp.concatenate([part[:, column, : length or None] for column in columns]) for part in parts)
        return ids, mask

    def most_tokens(self, columns: Sequence[int]) -> int | None:
        """The maximum number of tokens of these columns; None if padding is computed too."""
        return sum(self.column_tokens[column] for column in columns) if self.column_tokens else None


def dropout_keys(
    seed: Integer[AnyArray, ""] | int, step: Int[AnyArray, ""] | int, index: Int[AnyArray, " B"], numbers: Sequence[int]
) -> Key[Array, "V B"]:
    """A key for each view of each example: folded from (seed, step, index in the global batch, number).

    Args:
      seed, step: integer scalars, may be traced.
      index: (B,) positions of these examples in the *global* batch, also on a device that has only a part of it.
      numbers: V numbers, of masks or of other draws for an example.

    Returns:
      (V, B) typed threefry keys. They must be threefry: under `vmap`, rbg ignores all keys but one.
    """
    step_key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), step)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, index)
    return jax.vmap(lambda number: jax.vmap(jax.random.fold_in, (0, None))(keys, number))(jnp.asarray(numbers))
