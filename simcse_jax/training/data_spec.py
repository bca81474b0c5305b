"""The training data of a run, and how it reads them."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from simcse_jax.choices import ROLES
from simcse_jax.config.source_fields import LEFT_OUT
from simcse_jax.data.documents import Spans
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.scores import Scores
from simcse_jax.data.tokens import Lengths, Prompts
from simcse_jax.models.changes import Repeated
from simcse_jax.training.teacher import TeacherSpec

OF_MAX_LENGTH = Lengths(0, 0)


class Augmentation(NamedTuple):
    """How positives are made of sentences; see the fields of `config.data.augment`."""

    name: str
    percent: float
    both: bool
    lexicon: str
    mlm_model: str


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """The sources, how they are read and tokenized, and what the objectives of the run need of their rows."""

    train: str
    batch_size: int
    seed: int
    max_length: int
    columns: Mapping[str, str]
    positives: str = ""
    subsample: int = 0
    mixed: bool = False
    one_source: bool = False  # a batch has rows of one source alone
    weights: tuple[float, ...] = ()  # of the sources; (): by their sizes
    prompts: tuple[Prompts, ...] = ()  # of each source; (): there are none
    own_lengths: Lengths = OF_MAX_LENGTH
    spans: Spans | None = None
    augment: Augmentation | None = None
    local_cache: str = ""
    positive_template: str = ""
    repeated: Repeated | None = None  # positives have tokens twice
    keeps_apart: bool = False  # no two rows of a batch have a text in common
    contrasts: bool = False  # other sentences of a batch are negatives
    equal_texts: str = ""
    labels: str = ""  # what they say, `objectives.objective.RELATIONS` or `CLASSES`; empty: none are needed
    scores: Scores | None = None
    ranked_by: str = ""  # the objective that compares pairs by their scores
    pairing: Pairing | None = None  # makes the pairs of the sentences of one column
    paired_by: str = ""  # the objective whose pairing it is
    teacher: TeacherSpec | None = None
    no_gaps: tuple[str, str] | None = None  # why no row may lack a sentence, and how to change that

    @property
    def several(self) -> bool:
        """Whether it has several sources."""
        return "," in self.train

    @property
    def lengths(self) -> Lengths:
        """The most tokens of anchors and of other sentences."""
        return Lengths(*(length or self.max_length for length in self.own_lengths))

    @property
    def longest(self) -> tuple[str, int]:
        """The field that says how many tokens a sentence has at most, and their number."""
        fields = {
            f"data.lengths.{role}": length for role, length in zip(ROLES, self.own_lengths, strict=True) if length
        }
        if len(fields) < len(ROLES):
            fields["data.max_length"] = self.max_length
        name = max(fields, key=fields.__getitem__)
        return name, fields[name]

    def column_lengths(self, columns: int) -> tuple[int, ...]:
        """The places for a sentence of each column; () where all have the same."""
        if not any(self.own_lengths) or columns == 1:
            return ()
        anchor, positive = self.lengths
        return (anchor, *[positive] * (columns - 1))

    def leaves_equal_out(self, columns: int) -> bool:
        """Whether equal texts are left out of the negatives, in data with this many columns of sentences."""
        wanted = self.equal_texts == LEFT_OUT or (not self.equal_texts and columns > 1)
        return wanted and self.contrasts
