"""The parts of an objective: a term of the loss, its view of a batch, its parameters and its needs."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig


class Group(NamedTuple):
    """The views that form one contrast, by their positions."""

    anchor: int
    positive: int
    hard_negatives: tuple[int, ...]


Summed = TypeVar("Summed", bound=jax.Array | int)


class Psum(Protocol):
    """psum(x): the sum over the devices; x itself when all rows are local."""

    def __call__(self, x: Summed, /) -> Summed:
        """Sums an array, or a number that all devices have."""
        ...


class Embedded(NamedTuple):
    """The local rows of a batch, and access to the rows on other devices."""

    views: Float[AnyArray, "V B D"]
    positive: Group  # the views of the positive pairs
    negative: Group  # the views of the negative pairs, which may be others
    own: Int[AnyArray, " B"]  # positions in the global batch
    gather: Callable[[jax.Array], jax.Array]  # (K, B, D) -> (K, N, D)
    psum: Psum
    artificial: Callable[[int, int], jax.Array]  # M, D -> (M, D) standard normal rows, the same on every device
    params: dict[str, jax.Array]  # everything trained, by name; an objective reads its own
    label: Int[AnyArray, " B"] | None = None  # 0, 1, 2: entailment, neutral, contradiction
    score: Float[AnyArray, " B"] | None = None  # of each pair, see `data.scores`
    teacher: Float[AnyArray, "V B E"] | None = None  # a teacher's embeddings of the views' sentences
    # By objective: the sum of the losses at each example's tokens, and their number.
    token_losses: Mapping[str, tuple[Float[AnyArray, " B"], Int[AnyArray, " B"]]] = MappingProxyType({})
    # The features of the anchors' tokens, and which are tokens.
    local: tuple[Float[AnyArray, "B T D"], Int[AnyArray, "B T"]] | None = None
    present: Bool[AnyArray, "V B"] | None = None  # False where the data lack a view's sentence; None: nowhere
    projected: Float[AnyArray, "V B P"] | None = None  # the views after a projector; None without one

    @property
    def pair(self) -> tuple[Float[Array, "B D"], Float[Array, "B D"]]:
        """The anchors and the positives of the positive pairs, for the local rows."""
        return self.views[self.positive.anchor], self.views[self.positive.positive]

    def seen(self, projected: bool) -> "Embedded":
        """What an objective sees: itself, or the projected views in the place of the views."""
        if not projected:
            return self
        assert self.projected is not None  # there is a projector
        return self._replace(views=self.projected)

    def truncated(self, size: int) -> "Embedded":
        """The same with the first elements of each embedding, and of the tokens' features, alone."""
        local = None if self.local is None else (self.local[0][..., :size], self.local[1])
        return self._replace(views=self.views[..., :size], local=local)

    def others(self, group: Group) -> tuple[Float[Array, "N D"], Float[Array, "H N D"] | None]:
        """The positives and the hard negatives of a group, for the global batch."""
        gathered = self.gather(jnp.stack([self.views[view] for view in (group.positive, *group.hard_negatives)]))
        return gathered[0], gathered[1:] if group.hard_negatives else None

    def present_in(self, views: tuple[int, ...]) -> Bool[Array, "K B"] | None:
        """Which sentences of these views the local rows have; None: all of them."""
        return None if self.present is None else jnp.stack([self.present[view] for view in views])

    def present_negatives(self, group: Group) -> Bool[Array, "H N"] | None:
        """Which hard negatives of a group the data have, for the global batch; None: all of them."""
        if self.present is None or not group.hard_negatives:
            return None
        return self.gather(jnp.stack([self.present[view] for view in group.hard_negatives]))

    def mean(self, losses: Float[Array, " B"]) -> Float[Array, ""]:
        """The mean of per-example losses over the global batch."""
        return self.psum(jnp.sum(losses)) / self.psum(losses.shape[0])

    def mean_of_tokens(self, objective: str) -> Float[Array, ""]:
        """The mean of an objective's losses of tokens over the global batch; 0 without any."""
        losses, counts = (self.psum(jnp.sum(part)) for part in self.token_losses[objective])
        return losses / jnp.maximum(counts, 1)


class Parameters(NamedTuple):
    """An objective's own parameters, trained with the encoder's.

    fresh(encoder, key) returns their initial values, float32, by their names in checkpoints.
    """

    fresh: Callable[[EncoderConfig, Key[Array, ""]], dict[str, jax.Array]]
    stream: int  # folded into the seed for the key; nothing else may use the same number (see `runs.state`)
    pretrained: str = ""  # the part of a pretrained model, in words, whose values they start from if it has them
    copy_of_encoder: str = ""  # a prefix: under it, a copy of the encoder's weights is trained too


class Needs(NamedTuple):
    """Inputs that training must prepare for an objective."""

    labels: bool = False  # a label for each pair
    scores: bool = False  # a score for each pair
    teacher: bool = False  # a teacher's embeddings of all sentences
    masked_tokens: bool = False  # a pass over masked sentences
    replaced_tokens: bool = False  # a pass over sentences with words of a generator
    local_features: bool = False  # those of the anchors' tokens that their embeddings are pooled from
    negative_views: bool = False  # separate views for negative pairs, by `config.views.negative`
    negative_pairs: bool = False  # rows that are pairs of different sentences (`data.pairing`)


class Objective(NamedTuple):
    """A kind of term of the loss.

    term(embedded, **fields) is its loss over the global batch, a scalar that is the same on every device; `fields` are
    those of `config.objective.NAME` except the weight.
    """

    term: Callable[..., Float[Array, ""]]
    parameters: Parameters | None = None
    needs: Needs = Needs()
