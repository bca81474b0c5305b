"""An objective, a term of the loss, as a file of this folder declares it; what it is computed of; the sum of terms."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float, Int, Key, Shaped

from simcse_jax.errors import UserError
from simcse_jax.field import Field, weight
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.lazy import AnyArray, Array, jnp
from simcse_jax.objectives.negatives import NO_ANCHOR, Candidates
from simcse_jax.objectives.tokens import Tokens
from simcse_jax.objectives.views import Plan, View, Views

EMBEDDINGS, SCORES = "embeddings", "scores"  # what an objective learns from a teacher
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
    tokens: Any = None  # what the objective's pass over tokens has found, by rows
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
        """One view and several, for the global batch; None where there are none of the latter."""
        gathered = self.gather(self.stacked(name, several))
        return gathered[0], gathered[1:] if several in self.views else None

    def present_in(self, *names: str) -> Bool[Array, "K B"] | None:
        """Which sentences of these views the local rows have; None: all of them."""
        return None if self.present is None else self.stacked(*names, of=self.present)

    def candidates(self, *names: str, pair: tuple[str, str] = ("anchor", "positive")) -> Candidates | None:
        """What leaves out some of these views of the global batch as negatives, kind after kind; None: nothing does.

        Args:
          *names: of the candidates' views.
          pair: the names of an example's two views, of which the second is the positive of the first; all rows have
            both.
        """
        present = texts = anchors = pairs = None
        if self.present is not None and any(name in self.views for name in {*names} - {*pair}):
            there = {name: jnp.ones_like(rows) if name in pair else rows for name, rows in self.present.items()}
            present = self.gather(self.stacked(*names, of=there))
        if self.texts is not None:
            of_positive = {name: jnp.full_like(rows, NO_ANCHOR) for name, rows in self.texts.items()}
            of_positive[pair[1]] = jnp.asarray(self.texts[pair[0]])
            texts, anchors = (self.gather(self.stacked(*names, of=of)) for of in (self.texts, of_positive))
            pairs = jnp.stack([self.texts[name] for name in pair], axis=1)
        found = Candidates(present, texts, anchors, pairs)
        return None if present is texts is None else found

    def truncated(self, size: int) -> "Embedded":
        """The same with the first elements of each embedding alone."""
        return dataclasses.replace(self, views={name: rows[..., :size] for name, rows in self.views.items()})

    def mean(self, losses: Float[Array, " B"]) -> Float[Array, ""]:
        """The mean of per-example losses over the global batch."""
        return self.psum(jnp.sum(losses)) / self.psum(losses.shape[0])

    def mean_of_tokens(self, sums: Float[AnyArray, " B"], counts: Int[AnyArray, " B"]) -> Float[Array, ""]:
        """The mean over the tokens of the global batch, of sums over each row's tokens and their numbers; or 0."""
        total, count = (self.psum(jnp.sum(part)) for part in (sums, counts))
        return total / jnp.maximum(count, 1)


class Parameters(NamedTuple):
    """An objective's own parameters, trained with the encoder's.

    fresh(encoder, key) returns their initial values, float32, by their names in checkpoints.
    """

    fresh: Callable[[EncoderConfig, Key[Array, ""]], dict[str, Array]]
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
    """A kind of term of the loss. A subclass declares everything that it is; nothing else names it.

    The package's own files import neither JAX nor Flax at their top: the checks of a config read declarations before
    these are there.
    """

    name: str  # in `config.objective`
    about: str = ""  # a line for `--help`
    fields: ClassVar[Mapping[str, Field]] = MappingProxyType({"weight": weight()})  # of `config.objective.NAME`
    parameters: Parameters | None = None
    place: int = 1000  # in `--help`, where those with the same place are sorted by name

    # What it needs of the data, and what training prepares for it.
    labels = False  # a label for each pair
    scores = ""  # a score for each pair: `ranked`, whose order counts, or `unit`, from 0 to 1
    teacher = ""  # a teacher's `EMBEDDINGS` of all sentences, or its `SCORES` of candidates, which data may have too
    hard_negatives = False  # one or more in every row
    masks_tokens = False  # the tokenizer's mask token
    replaces_tokens = False  # the networks `generator`, which writes words, and `discriminator`, which finds them
    every_sentence = False  # all sentences of every example, which sources with different columns lack
    separate_negatives = False  # whether it reads the field views.negative
    contrasts = False  # whether other sentences of the batch are negatives; it may then be given `texts`
    reads: tuple[str, ...] = ("anchor", "positive", "hard_negatives")  # of the pair's views; others are not encoded
    features: tuple[str, ...] = ()  # the names of its views whose tokens' features `tokens` reads

    # What it is a loss of.
    embeds = True  # sentences; False: tokens alone
    paired = True  # whether it takes every pair for a positive one
    compares_views = True  # two views of a sentence, which must differ
    projectable = True  # whether it may see projected embeddings
    truncatable = True  # whether it is defined for the first elements of embeddings, too

    @property
    def judged(self) -> tuple[str, str]:
        """What somebody has said of its pairs, and which of them are no positives then; empty: nothing."""
        if self.labels:
            return "labelled pairs", "contradictions"
        return ("pairs with scores", "those with low scores") if self.scores else ("", "")

    def check(self, config: Any, active: Sequence["Objective"]) -> None:
        """Refuses other fields that do not go together with it, before anything is read.

        Args:
          config: of a run that trains it.
          active: all objectives that the run trains.

        Raises:
          UserError: naming the field.
        """
        (kind, low), data, field = self.judged, config.data, f"objective.{self.name}"
        if kind and data.augment.name:
            raise UserError(f"config.{field}.weight: needs {kind}, so data.augment.name must be empty")
        if kind and data.positives not in ("", "all"):
            raise UserError(f"config.data.positives={data.positives!r}: must be empty or all, for {field}")
        if kind and data.columns.negative:
            raise UserError(
                f"config.data.columns.negative={data.columns.negative!r}: {field} needs {kind}; leave it empty"
            )
        paired = [other.name for other in active if kind and other.paired]
        if paired and data.positives != "all":
            raise UserError(
                f"config.objective.{paired[0]}.weight: next to {self.name} it would take all {kind} for positives, "
                f"{low} too; set it to 0.0, or data.positives=all if you want that"
            )

    def check_columns(self, config: Any, columns: Columns) -> None:
        """Refuses data that lack what it needs.

        Raises:
          UserError: naming the field and the data.
        """
        field = f"config.objective.{self.name}.weight"
        if self.hard_negatives and columns.number < 3:
            raise UserError(
                f"{field}: needs hard negatives, but {columns.data} has no column of them; set data.columns.negative"
            )
        if self.hard_negatives and columns.fewest < 3:
            raise UserError(
                f"{field}: needs a hard negative in every row, but some rows of {columns.data} have none; leave these "
                "rows out"
            )
        kind, _ = self.judged
        if kind and columns.number != 2:
            raise UserError(
                f"{field}: needs {kind}, but {columns.data} has {columns.number} column(s) of sentences; choose two "
                "with data.columns.anchor and data.columns.positive"
            )

    def check_teacher(self, names: tuple[str, str], sizes: tuple[int, int]) -> None:
        """Refuses a teacher whose embeddings have a size that it has no use for.

        Args:
          names: of the teacher and of the model that is trained.
          sizes: the elements of their embeddings.

        Raises:
          UserError: naming the teacher.
        """

    def pairing(self, fields: Any) -> Any:
        """How the pairs of an epoch are made of the sentences of one column (`data.pairing`); None: rows are pairs.

        `fields` are those of `config.objective.NAME`.
        """
        return None

    def views(self, plan: Plan) -> Views:
        """The views of which its loss is computed, by names of its own; equal ones of several objectives are one."""
        return {name: view for name, view in plan.pair().items() if name in self.reads}

    def tokens(self, tokens: Tokens) -> Any:
        """A pass over tokens, in the pass that encodes the views: whatever it finds by rows, for `loss`."""
        return None

    def drawn(self, tokens: Tokens) -> Any:
        """What `second_pass` reads of the rows, made without gradient and once."""
        return None

    def second_pass(self, tokens: Tokens, drawn: Any, embeddings: Mapping[str, Float[Array, "B D"]]) -> Any:
        """A pass over tokens after the projector: whatever it finds by rows, for `loss`.

        Args:
          tokens: the rows.
          drawn: what `drawn` has made of them.
          embeddings: its views of these rows, by name, those alone that are one view.
        """
        raise NotImplementedError

    def state(
        self, encoder: EncoderConfig, params: Mapping[str, AnyArray], key: Key[Array, ""], **fields: Any
    ) -> dict[str, Array]:
        """What it keeps from step to step besides parameters, as it is before the first one; checkpoints have it.

        Args:
          encoder: of the run.
          params: everything that is trained, at the start; the state must have copies, no array of these.
          key: for random values.
          **fields: those of `config.objective.NAME`.
        """
        return {}

    def left(self, plan: Plan) -> Mapping[str, View]:
        """Views that a step encodes for `after`, without gradient and with the parameters before the update.

        The encoder of a view whose `tower` is the objective's name has the arrays of its state in the place of the
        parameters with the same names.
        """
        return {}

    def after(
        self, state: Mapping[str, Array], left: Mapping[str, Float[Array, "N D"]], params: Mapping[str, Array], **_: Any
    ) -> dict[str, Array]:
        """The state after a step.

        Args:
          state: before it.
          left: the embeddings of the views of that name, of the global batch in its order.
          params: everything trained, after the update.
          **_: the objective's fields except the weight.
        """
        raise NotImplementedError

    def overrides(self, method: str) -> bool:
        """Whether it has a method of its own in the place of one of this class."""
        return getattr(type(self), method) is not getattr(Objective, method)

    def loss(self, embedded: Embedded, *args: Any, **fields: Any) -> Float[Array, ""]:
        """The loss over the global batch, a scalar that is the same on every device.

        Args:
          embedded: the batch.
          *args: none; a subclass names the fields that it has.
          **fields: those of `config.objective.NAME` except the weight.
        """
        raise NotImplementedError

    def measures(self, embedded: Embedded) -> dict[str, Float[Array, ""]]:
        """Further numbers of a batch, by name, the same on every device: `NAME/…` of a step's metrics."""
        return {}


class Term(NamedTuple):
    """A term of a run's loss: an objective, and those of its fields that are compiled in."""

    objective: Objective
    options: tuple[tuple[str, Any], ...] = ()
    projected: bool = False  # it sees the views after the projector

    @property
    def name(self) -> str:
        """That of its objective."""
        return self.objective.name

    def fields(self, numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """All fields of its objective, of which `numbers` has those of the step, by objective."""
        return {**numbers[self.name], **dict(self.options)}


def total(
    terms: Sequence[tuple[Term, Embedded]],
    numbers: Mapping[str, Mapping[str, Any]],
    sizes: Sequence[int] = (),
    size_weights: Float[AnyArray, " S"] | None = None,
) -> Float[Array, ""]:
    """Σ weight · objective over the global batch, the same scalar on every device.

    With sizes, an objective of embeddings is itself a weighted sum over embeddings of which the first elements are
    left, Matryoshka embeddings (Kusupati et al. 2022, arXiv:2205.13147, equation 1):

        ℓ = Σ_m c_m ℓ(h_{1:m})

    Args:
      terms: the objectives to sum, each with what it sees of the batch.
      numbers: each objective's scalar fields by name, including its `weight`.
      sizes: m, numbers of elements; empty: the embeddings as they are.
      size_weights: (S,) c_m; needed with sizes.
    """
    loss = jnp.zeros(())
    for term, embedded in terms:
        objective, fields = term.objective, term.fields(numbers)
        weight = fields.pop("weight")
        if sizes and objective.truncatable:
            assert size_weights is not None
            each = [objective.loss(embedded.truncated(size), **fields) for size in sizes]
            loss += weight * sum(size_weights[place] * one for place, one in enumerate(each))
        else:
            loss += weight * objective.loss(embedded, **fields)
    return loss


def measured(terms: Sequence[tuple[Term, Embedded]]) -> dict[str, Float[Array, ""]]:
    """What the objectives measure of a batch, as OBJECTIVE/NAME."""
    return {
        f"{term.name}/{name}": value
        for term, embedded in terms
        for name, value in term.objective.measures(embedded).items()
    }
