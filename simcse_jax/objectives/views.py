"""The views of a sentence: which column of the data is encoded, changed or not, under which masks, by which encoder.

A mask or a change belongs to an example, so its key is folded from what identifies the example and from nothing else.
The numbers here are part of these keys: with another number a run would not resume as it began.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simcse_jax.choices import MASKED
from simcse_jax.models.config import Template

MEMBERS = 4  # anchor, positive, and two hard negatives, one after the other in the numbers of masks
FURTHER = 1 << 24  # the first number of masks of further hard negatives: above all others
NOISE = 1 << 16  # the first number of the keys for noise on embeddings
LANGUAGE_MODEL = 1 << 17  # for dropout in the masked-language-model pass, a key for each column
MASKING = LANGUAGE_MODEL + MEMBERS  # which of its tokens are masked
CHANGE = 1 << 19  # the first number of the keys for changes of the input
DENOISING = (
    1 << 27
)  # added to a mask's number: of the template alone, whose embedding is subtracted from the sentence's
SPREAD = 1 << 12  # between the numbers of a view's columns: above all numbers of masks
OWN = 1 << 28  # the first number that is free for an objective from outside
RATE, POSITIVE_RATE = "dropout", "positive_dropout"  # numbers of the step: the last parts of two fields' names
# For replaced tokens, a key for each member: which tokens are masked, and dropout in the two networks that read them.
REPLACING, WRITING, FINDING = 1 << 18, (1 << 18) + MEMBERS, (1 << 18) + 2 * MEMBERS


def mask_number(member: int, place: int = 0) -> int:
    """The number of a mask of a member of a pair, of several the one at `place`; no two have the same."""
    return MEMBERS * place + member if member < MEMBERS else FURTHER + SPREAD * place + member


def column_number(first: int, column: int) -> int:
    """The number of a column's draw, counted from `first`; further columns have numbers above all others."""
    return first + column if column < MEMBERS else 2 * FURTHER + SPREAD * (first - LANGUAGE_MODEL) + column


# From the number of a member of a pair, and K, to the numbers of its masks; several masks' embeddings are averaged.
# `config.loss_fields.POLICIES` explains the policies.
POLICY_MASKS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "independent": lambda member, samples: (mask_number(member),),  # SimCSE, equation 4
    "shared": lambda member, samples: (0,),  # "fixed 0.1" of SimCSE's Table 3
    "off": lambda member, samples: (),  # SimCSE++'s off-dropout
    "noisy": lambda member, samples: (mask_number(member),),  # SimCSE++, section 3.1, as the next one
    "mean": lambda member, samples: tuple(mask_number(member, 1 + sample) for sample in range(samples)),
}


# A change of the tokens: change(keys, ids, mask) -> (ids, mask), each (B, T) or with more places, from a key for each
# row. A function at the top of a file, or a frozen dataclass that is one, so that it is the same each time.
Change = Callable[..., Any]


class Pass(NamedTuple):
    """What sentences must share to be encoded together."""

    tower: int | str = 0  # which of two encoders
    dropout: bool = True  # whether under dropout masks
    rate: str = RATE  # the name of their dropout rate among the numbers of the step
    change: str | Change = "none"
    length: int = 0  # the places of a sentence; 0: all that the batch has
    removed: Template | None = None  # around the sentences; its own embedding is subtracted


class Draw(NamedTuple):
    """One encoding of each example in a pass; numbers do not count in a pass without masks or without a change."""

    column: int  # of the batch
    mask: int  # the number of its dropout mask
    change: int  # that of its change


class View(NamedTuple):
    """One embedding of each example. Equal views are computed once."""

    column: int  # of the batch
    masks: tuple[int, ...]  # the numbers of its dropout masks; several embeddings are averaged; (): no dropout
    noise: int | None = None  # the number of its Gaussian noise
    tower: int | str = 0  # which of two encoders; the name of an objective: that of its state
    change: str | Change = "none"
    changed: int = 0  # the number of its change, the same under all of its masks
    rate: str = RATE
    further_columns: tuple[int, ...] = ()  # further columns, whose embeddings are averaged with that of `column`
    length: int = 0  # the places of a sentence; 0: all that the batch has
    removed: Template | None = None  # around the sentence; its own embedding is subtracted

    @property
    def columns(self) -> tuple[int, ...]:
        """All of its columns."""
        return (self.column, *self.further_columns)

    @property
    def draws(self) -> list[Draw]:
        """The draws of the embeddings that are averaged."""
        columns = [(SPREAD * place, column) for place, column in enumerate(self.columns)]
        return [
            Draw(column, first + mask, first + self.changed) for first, column in columns for mask in self.masks or (0,)
        ]

    @property
    def encoder_pass(self) -> Pass:
        """The pass that encodes it."""
        length = 0 if self.change == MASKED else self.length  # masked tokens are drawn for all places
        return Pass(self.tower, bool(self.masks), self.rate, self.change, length, self.removed)


Views = Mapping[str, View | tuple[View, ...]]  # by the names that an objective gives them; one view, or any number


class Plan(NamedTuple):
    """The settings of a run from which objectives make their views."""

    columns: int  # of the data; with one, a sentence is its own positive
    positive: str  # the policy of the masks of pairs, of `config.loss_fields.POLICIES`
    negative: str = "off"  # that of negative pairs which are encoded separately
    samples: int = 10  # K of the policy `mean`
    two_towers: bool = False  # a second encoder for all but the anchors
    anchor_change: str | Change = "none"  # of `choices.CHANGES`, or MASKED
    positive_change: str | Change = "none"
    positive_rate: bool = False  # whether positives have a dropout rate of their own
    positives: int = 1  # the columns after the anchors whose mean embedding is the positive; above 1, no others follow
    lengths: tuple[int, ...] = ()  # the places for a sentence of each column; (): all have the same
    template: Template | None = None  # around every sentence
    positive_template: Template | None = None  # in its place around all but anchors, by the change of the positives
    denoising: str = "none"  # of `choices.DENOISING`

    @property
    def pair_columns(self) -> tuple[int, int]:
        """The columns of the pairs' two sentences, which may be one."""
        return 0, min(1, self.columns - 1)

    def pair(self) -> dict[str, View | tuple[View, ...]]:
        """The views `anchor`, `positive` and `hard_negatives` of the positive pairs."""
        return self._named(self.positive, self)

    def separate(self) -> dict[str, View | tuple[View, ...]]:
        """The same three views for negative pairs that are encoded separately.

        They have neither changes nor a rate of their own: they are encoded separately to be without such noise.
        """
        return self._named(
            self.negative,
            self._replace(anchor_change="none", positive_change="none", positive_rate=False, positive_template=None),
        )

    def _named(self, policy: str, inputs: "Plan") -> dict[str, View | tuple[View, ...]]:
        columns = (0, 0) if self.columns == 1 else tuple(range(self.columns - self.positives + 1))
        anchor, positive, *hard_negatives = (
            self._view(member, column, policy, inputs) for member, column in enumerate(columns)
        )
        return {"anchor": anchor, "positive": positive, "hard_negatives": tuple(hard_negatives)}

    def _view(self, member: int, column: int, policy: str, inputs: "Plan") -> View:
        masks, noise = POLICY_MASKS[policy](member, self.samples), member if policy == "noisy" else None
        template, change = inputs.template, (inputs.anchor_change, inputs.positive_change, "none")[min(member, 2)]
        if inputs.positive_template and member > 0:
            template, change = inputs.positive_template, inputs.positive_change
        further_columns = tuple(range(2, 1 + self.positives)) if member == 1 else ()
        return View(
            column,
            masks,
            noise,
            tower=int(self.two_towers and member > 0),
            change=change,
            changed=0 if change == "none" else member,
            further_columns=further_columns,
            length=max(self.lengths[column] for column in (column, *further_columns)) if self.lengths else 0,
            rate=POSITIVE_RATE if member == 1 and masks and inputs.positive_rate else RATE,
            removed=None if inputs.denoising == "none" else template,
        )


def flatten_views(views: Views) -> list[View]:
    """All views of an objective, in their order."""
    return [view for named in views.values() for view in ((named,) if isinstance(named, View) else named)]
