"""The base classes of objectives, the terms of the loss. They check configs before JAX is imported."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from simcse_jax.data.pairing import Pairing
from simcse_jax.field import Field, weight
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.views import Plan, View, Views

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Key

    from simcse_jax.models.arrays import AnyArray
    from simcse_jax.objectives.embedded import Embedded
    from simcse_jax.objectives.tokens import Tokens

# What an objective learns from a teacher: its embeddings of all sentences, or those of a teacher with the model's
# embedding size; or its scores of candidates, which the data may have instead.
EMBEDDINGS, ELEMENTS, SCORES = "embeddings", "elements", "scores"
RELATIONS, CLASSES = "relations", "classes"  # what the labels that it reads say


class Parameters(NamedTuple):
    """An objective's own parameters, trained with the encoder's.

    fresh(encoder, key) returns their initial values, float32, by their names in checkpoints.
    """

    fresh: "Callable[[EncoderConfig, Key[Array, '']], dict[str, Array]]"
    stream: int  # folded into the seed for the key; nothing else may use the same number (see `runs.state`)
    pretrained: str = ""  # the part of a pretrained model, in words, whose values they start from if it has them
    copy_of_encoder: str = ""  # a prefix: under it, a copy of the encoder's weights is trained too


class Columns(NamedTuple):
    """The columns of sentences in a run's data, or in one of its sources. Several positives of an anchor are one."""

    data: str  # the name of the data
    number: int
    fewest: int  # the sentences of a row that has the fewest: 1 where it is its own positive
    most: int  # the columns of the source that has the most


class Objective:
    """A kind of term of the loss. An ordinary one has a name, fields, views and `loss`; nothing else names it."""

    name: str  # in `config.objective`
    about: str = ""  # a line for `--help`
    fields: ClassVar[Mapping[str, Field]] = MappingProxyType({"weight": weight()})  # of `config.objective.NAME`
    parameters: Parameters | None = None

    # What it needs of the data, and what training prepares for it.
    labels = ""  # one of a pair, NLI's `RELATIONS`; or one of each sentence: any `CLASSES`
    scores = ""  # a score for each pair: `ranked`, whose order counts, or `unit`, from 0 to 1
    teacher = ""  # a teacher's `EMBEDDINGS`, `ELEMENTS` or `SCORES`
    hard_negatives = False  # one or more in every row
    masks_tokens = False  # the tokenizer's mask token
    replaces_tokens = False  # the networks `generator`, which writes words, and `discriminator`, which finds them
    every_sentence = False  # all sentences of every example, which sources with different columns lack
    separate_negatives = False  # whether it reads the field views.negative
    contrasts = False  # whether other sentences of the batch are negatives; it may then be given `texts`
    reads: tuple[str, ...] = ("anchor", "positive", "hard_negatives")  # of the pair's views; others are not encoded

    # What its loss is computed from.
    embeds = True  # sentences; False: tokens alone
    paired = True  # whether it takes every pair for a positive one
    compares_views = True  # two views of a sentence, which must differ
    projectable = True  # whether it may see projected embeddings
    truncatable = True  # whether it is defined for the first elements of embeddings, too

    def conflicts(self, config: Any, active: "Sequence[Objective]") -> Iterable[tuple[str, str]]:
        """Fields of a run's config that do not go together with it, and why, found before anything is read.

        `active` are all objectives that the run trains.
        """
        return ()

    def check_columns(self, fields: Any, columns: Columns) -> None:
        """Refuses data that lack what it needs, beyond what it declares.

        Raises:
          UserError: naming the field and the data.
        """

    def views(self, plan: Plan) -> Views:
        """The views of which its loss is computed, by names of its own; equal ones of several objectives are one."""
        return {name: view for name, view in plan.pair().items() if name in self.reads}

    def loss(self, embedded: "Embedded", *args: Any, **fields: Any) -> "Float[Array, '']":
        """The loss over the global batch, a scalar that is the same on every device.

        Args:
          embedded: the batch.
          *args: none; a subclass names the fields that it has.
          **fields: those of `config.objective.NAME` except the weight.
        """
        raise NotImplementedError


class PairingObjective(Objective):
    """An objective that makes pairs from the sentences of one column; for others, rows are pairs."""

    def pairing(self, fields: Any) -> Pairing:
        """How pairs are made; `fields` are those of `config.objective.NAME`."""
        raise NotImplementedError


class TokenObjective(Objective):
    """An objective that reads tokens in the pass that encodes the views."""

    features: tuple[str, ...] = ()  # the names of its views whose tokens' features it reads

    def tokens(self, tokens: "Tokens") -> Any:
        """The result by rows, any pytree, which `loss` gets as `embedded.tokens`."""
        raise NotImplementedError


class SecondPassObjective(Objective):
    """An objective that reads tokens after the views have been encoded and projected."""

    def drawn(self, tokens: "Tokens") -> Any:
        """Random inputs of `second_pass`, made once and without gradient."""
        raise NotImplementedError

    def second_pass(self, tokens: "Tokens", drawn: Any, embeddings: "Mapping[str, Float[Array, 'B D']]") -> Any:
        """The result by rows, any pytree, which `loss` gets as `embedded.tokens`.

        Args:
          tokens: the rows.
          drawn: the result of `drawn`.
          embeddings: these rows of its views, by name; without names that stand for several views.
        """
        raise NotImplementedError

    def measures(self, embedded: "Embedded") -> "dict[str, Float[Array, '']]":
        """Further numbers of a batch, by name, the same on every device: `NAME/…` of a step's metrics."""
        return {}


class StatefulObjective(Objective):
    """An objective that keeps arrays from step to step besides parameters; checkpoints have them."""

    def initial_state(
        self, encoder: EncoderConfig, params: "Mapping[str, AnyArray]", key: "Key[Array, '']", **fields: Any
    ) -> "dict[str, Array]":
        """The state before the first step.

        Args:
          encoder: of the run.
          params: everything that is trained, at the start; the state must have copies, no array of these.
          key: for random values.
          **fields: those of `config.objective.NAME`.
        """
        raise NotImplementedError

    def state_views(self, plan: Plan) -> Mapping[str, View]:
        """Views that a step encodes for `next_state`, without gradient and with the parameters before the update.

        The encoder of a view whose `tower` is the objective's name has the arrays of its state in the place of the
        parameters with the same names.
        """
        raise NotImplementedError

    def next_state(
        self,
        state: "Mapping[str, Array]",
        views: "Mapping[str, Float[Array, 'N D']]",
        params: "Mapping[str, Array]",
        **fields: Any,
    ) -> "dict[str, Array]":
        """The state after a step.

        Args:
          state: before it.
          views: the embeddings of `state_views`, of the global batch in its order.
          params: everything trained, after the update.
          **fields: the objective's fields except the weight.
        """
        raise NotImplementedError


class Term(NamedTuple):
    """A term of a run's loss: an objective, and those of its fields that are compiled in."""

    objective: Objective
    options: tuple[tuple[str, Any], ...] = ()
    projected: bool = False  # it sees the views after the projector

    @property
    def name(self) -> str:
        """The name of its objective."""
        return self.objective.name

    def fields(self, numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """All fields of its objective; `numbers` are the step's, by objective."""
        return {**numbers[self.name], **dict(self.options)}
