"""What an objective is: a term of the loss, what it is given of a batch, and what it needs."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig


class Group(NamedTuple):
    """What belongs together in a contrast, by position among the views."""

    anchor: int
    positive: int
    hard_negatives: tuple[int, ...]


Summed = TypeVar("Summed", bound=jax.Array | int)


class Psum(Protocol):
    """psum(x): the sum over the devices; x itself where all rows are at hand."""

    def __call__(self, x: Summed, /) -> Summed:
        """Of an array, or of a number that all devices have."""
        ...


class Embedded(NamedTuple):
    """The rows of a batch on this device, and how to reach those on the others."""

    views: Float[AnyArray, "V B D"]
    positive: Group  # the views of the positive pairs
    negative: Group  # those of the negative pairs, where they are other ones
    own: Int[AnyArray, " B"]  # positions in the global batch
    gather: Callable[[jax.Array], jax.Array]  # (K, B, D) -> (K, N, D)
    psum: Psum
    artificial: Callable[[int], jax.Array]  # M -> (M, D) standard normal rows, the same on every device
    params: dict[str, jax.Array]  # all that is trained, by name; an objective reads its own
    label: Int[AnyArray, " B"] | None = None  # 0, 1, 2: entailment, neutral, contradiction
    # The sums of the masked-token losses of an example, and how many they are.
    masked: tuple[Float[AnyArray, " B"], Int[AnyArray, " B"]] | None = None

    @property
    def pair(self) -> tuple[Float[Array, "B D"], Float[Array, "B D"]]:
        """The anchors and the positives of the positive pairs, of the rows at hand."""
        return self.views[self.positive.anchor], self.views[self.positive.positive]

    def others(self, group: Group) -> tuple[Float[Array, "N D"], Float[Array, "H N D"] | None]:
        """The positives and the further negatives of a group, of the global batch."""
        gathered = self.gather(jnp.stack([self.views[view] for view in (group.positive, *group.hard_negatives)]))
        return gathered[0], gathered[1:] if group.hard_negatives else None

    def mean(self, losses: Float[Array, " B"]) -> Float[Array, ""]:
        """The mean over the global batch of one loss an example."""
        return self.psum(jnp.sum(losses)) / self.psum(losses.shape[0])


class Parameters(NamedTuple):
    """Parameters of an objective's own, trained with the encoder's.

    fresh(encoder, key) has their first values, float32, by the names that they have in checkpoints.
    """

    fresh: Callable[[EncoderConfig, Key[Array, ""]], dict[str, jax.Array]]
    stream: int  # folded into the seed for the key; nothing else may have the same (see `runs.state`)
    pretrained: str = ""  # what a model that has them already calls them: they start from its own


class Needs(NamedTuple):
    """What the training has to prepare for an objective."""

    labels: bool = False  # pairs with a label each
    masked_tokens: bool = False  # a pass over masked sentences
    negative_views: bool = False  # negative pairs with views of their own, by `config.views.negative`


class Objective(NamedTuple):
    """A kind of term of the loss.

    term(embedded, **fields) is its loss of the global batch, a scalar that is the same on every device; `fields` are
    those of `config.objective.NAME`, but for the weight.
    """

    term: Callable[..., Float[Array, ""]]
    parameters: Parameters | None = None
    needs: Needs = Needs()
