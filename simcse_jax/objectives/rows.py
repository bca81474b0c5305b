"""The rows of a batch that are encoded at a time, and the keys of all that is drawn for them: dropout masks first."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Integer, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.masking import mask_tokens
from simcse_jax.objectives.views import MASKING, column_number

# input_ids, attention_mask: (B, C, T); index: (B,) in the global batch; label, score: (B,); present, text: (B, C), see
# `Corpus`; teacher: (B, C, E)
Batch = dict[str, AnyArray]
Kept = dict[str, dict[str, Array]]  # what objectives keep from step to step, by their names (`Objective.state`)
Settings = dict[str, Any]  # a pytree of scalars: changing one recompiles nothing


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


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a batch that are encoded at a time. Several columns P of B rows are stacked into P · B rows."""

    batch: Batch
    step: Int[AnyArray, ""]
    settings: Settings
    column_tokens: tuple[int, ...] = ()  # see `loss.Recipe.most_tokens`
    drops_attention: bool = True  # see `loss.Recipe`
    masking: Any = None  # what must be known of the tokenizer (`models.masking.Masking`); None: nothing is masked
    words: int = 0  # of the vocabulary, where something is masked

    def keys(self, numbers: Sequence[int]) -> Key[Array, "V B"]:
        """A key for each number and each row."""
        return dropout_keys(self.settings["seed"], self.step, self.batch["index"], numbers)

    def rates(self, name: str = "dropout") -> dict[str, Any]:
        """The encoder's arguments for the dropout rate of that name, and attention's and LoRA's if they have others."""
        others = {f"{part}_dropout_rate": self.settings.get(f"{part}_dropout") for part in ("attention", "lora")}
        if not self.drops_attention:
            others["attention_dropout_rate"] = 0.0
        return {"dropout_rate": self.settings[name]} | others

    def read(self, columns: Sequence[int], length: int = 0) -> tuple[Int[Array, "PB T"], Int[Array, "PB T"]]:
        """The ids and the mask of P columns, T tokens of each row, the first `length`; 0: all."""
        parts = self.batch["input_ids"], self.batch["attention_mask"]
        ids, mask = (jnp.concatenate([part[:, column, : length or None] for column in columns]) for part in parts)
        return ids, mask

    def masked(
        self, columns: Sequence[int], numbers: Sequence[int] = (), **share: Any
    ) -> tuple[Int[Array, "PB T"], Bool[Array, "PB T"]]:
        """The ids of P columns with some of them masked, and which are; by default as the change `masked` has them.

        Args:
          columns: P of them.
          numbers: P numbers of the draws.
          **share: `probability`, the share of tokens; 15% without it.
        """
        keys = self.keys(numbers or [column_number(MASKING, column) for column in columns]).reshape(-1)
        ids, mask = self.read(columns)
        return mask_tokens(keys, ids, mask, vocab_size=self.words, **self.masking._asdict() | share)

    def most_tokens(self, columns: Sequence[int]) -> int | None:
        """The maximum number of tokens of these columns; None if padding is computed too."""
        return sum(self.column_tokens[column] for column in columns) if self.column_tokens else None
