"""A batch as an objective sees it: its views, and the other inputs of a loss."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from simcse_jax.errors import UserError
from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.negatives import NO_ANCHOR, Candidates

Summed = TypeVar("Summed", bound=Array | int)


@runtime_checkable
class Psum(Protocol):
    """psum(x): the sum over the devices; x itself when all rows are local."""

    def __call__(self, x: Summed, /) -> Summed:
        """Sums an array, or a number that all devices have."""
        ...


@dataclasses.dataclass(frozen=True)
class Embedded:
    """The views that an objective asked for, by its names, of this device's rows; and the rows of other devices.

    A view is (B, D); several under one name are (H, B, D), and a name with none is missing.
    """

    views: Mapping[str, Float[AnyArray, "..."]]
    own: Int[AnyArray, " B"]  # positions in the global batch
    gather: Callable[[AnyArray], Array]  # (K, B, …) -> (K, N, …)
    psum: Psum
    artificial: Callable[[int, int], Array]  # M, D -> (M, D) standard normal rows, the same on every device
    params: Mapping[str, Array]  # everything trained, by name; an objective reads its own
    label: Int[AnyArray, " B"] | None = None  # 0, 1, 2: entailment, neutral, contradiction
    # (B,) of each pair, see `data.scores`; or (B, C - 1) a teacher's, of the positive and the hard negatives.
    score: Float[AnyArray, "..."] | None = None
    teacher: Mapping[str, Float[AnyArray, "..."]] | None = None  # a teacher's embeddings of the views' sentences
    present: Mapping[str, Bool[AnyArray, "..."]] | None = None  # False where the data lack a sentence; None: nowhere
    texts: Mapping[str, Int[AnyArray, "..."]] | None = None  # equal numbers for equal texts; None: not known
    tokens: Any = None  # the result of the objective's pass over tokens, by rows
    state: Mapping[str, AnyArray] | None = None  # what the objective keeps from step to step, whole on every device

    def __getitem__(self, name: str) -> Float[AnyArray, "*H B D"]:
        if name not in self.views:
            raise UserError(f"an objective's loss reads the view {name!r}; it asked for {', '.join(self.views)}")
        return self.views[name]

    @property
    def pair(self) -> tuple[Float[AnyArray, "B D"], Float[AnyArray, "B D"]]:
        """The anchors and the positives."""
        return self["anchor"], self["positive"]

    def stacked(self, *names: str, of: Mapping[str, AnyArray] | None = None) -> Shaped[Array, "K B *D"]:
        """All views with these names, one after the other; `of` has other rows by the same names, e.g. `teacher`."""
        rows = self.views if of is None else of
        several = {name: self.views[name].ndim > 2 for name in names if name in self.views}
        return jnp.concatenate([rows[name] if more else rows[name][None] for name, more in several.items()])

    def everywhere(self, name: str, several: str) -> tuple[Float[Array, "N D"], Float[Array, "H N D"] | None]:
        """One view and a group of views, of the global batch; None for an empty group."""
        gathered = self.gather(self.stacked(name, several))
        return gathered[0], gathered[1:] if several in self.views else None

    def present_in(self, *names: str) -> Bool[Array, "K B"] | None:
        """Whether the local rows have the sentences of these views; None: they have all."""
        return None if self.present is None else self.stacked(*names, of=self.present)

    def mean_of_present(self, losses: Float[Array, "K B"], *names: str) -> Float[Array, ""]:
        """The mean over the global batch of losses of these views' sentences that are there; 0 if none is."""
        present = self.present_in(*names)
        is_there = jnp.ones_like(losses, bool) if present is None else present
        total, count = (self.psum(jnp.sum(part)) for part in (jnp.where(is_there, losses, 0.0), is_there))
        return total / jnp.maximum(count, 1)

    def candidates(self, *names: str, pair: tuple[str, str] = ("anchor", "positive")) -> Candidates | None:
        """Which of these views of the global batch are left out as negatives, kind after kind; None: none.

        Args:
          *names: of the candidates' views.
          pair: the names of an example's two views, of which the second is the positive of the first; all rows have
            both.
        """
        present = texts = anchors = pairs = None
        if self.present is not None and any(name in self.views for name in {*names} - {*pair}):
            presence = {name: jnp.ones_like(rows) if name in pair else rows for name, rows in self.present.items()}
            present = self.gather(self.stacked(*names, of=presence))
        if self.texts is not None:
            of_positive = {name: jnp.full_like(rows, NO_ANCHOR) for name, rows in self.texts.items()}
            of_positive[pair[1]] = jnp.asarray(self.texts[pair[0]])
            texts, anchors = (self.gather(self.stacked(*names, of=of)) for of in (self.texts, of_positive))
            pairs = jnp.stack([self.texts[name] for name in pair], axis=1)
        candidates = Candidates(present, texts, anchors, pairs)
        return None if present is texts is None else candidates

    def truncated(self, size: int) -> "Embedded":
        """The same with the first elements of each embedding alone."""
        return dataclasses.replace(self, views={name: rows[..., :size] for name, rows in self.views.items()})

    def mean(self, losses: Float[Array, " B"]) -> Float[Array, ""]:
        """The mean of per-example losses over the global batch."""
        return self.psum(jnp.sum(losses)) / self.psum(losses.shape[0])

    def mean_of_tokens(self, sums: Float[AnyArray, " B"], counts: Int[AnyArray, " B"]) -> Float[Array, ""]:
        """The mean over the tokens of the global batch, from each row's sum and number of tokens; 0 without any."""
        total, count = (self.psum(jnp.sum(part)) for part in (sums, counts))
        return total / jnp.maximum(count, 1)
