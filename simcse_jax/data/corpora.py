"""The interface of training data for corpora in memory, prepared ones, and several with batches of their own."""

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.data.pairing import Pairing
from simcse_jax.data.tokens import NO_PROMPTS, Prompts
from simcse_jax.host.storage import sha256


class TeacherEmbeddings(NamedTuple):
    """One or two teachers' embeddings of all sentences; those of sentence c of row n are at `places[n, c]`."""

    embeddings: np.ndarray  # (U, E) float32, of each distinct sentence
    places: np.ndarray  # (N, C) int32
    key: str  # what they depend on
    second: np.ndarray | None = None  # (U, F) float32, by the second teacher
    share: float = 1.0  # the first teacher's, of their cosines

    def of(self, places: np.ndarray) -> np.ndarray:
        """The embeddings at these places, (…, E); of two teachers both side by side, (…, E + F).

        They are √α t₁ / ‖t₁‖ and √(1 − α) t₂ / ‖t₂‖ with α the share, so that the cosine of two sentences is
        α cos₁ + (1 − α) cos₂, the mixture of RankCSE (Liu et al. 2023, arXiv:2305.16726, Section 3.3).
        """
        first = np.asarray(self.embeddings[places])
        if self.second is None:
            return first
        parts = (first, self.share), (self.second[places], 1 - self.share)
        return np.concatenate([np.float32(np.sqrt(share)) * _unit(rows) for rows, share in parts], axis=-1)


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows (…, E) of length 1."""
    lengths: np.ndarray = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit: np.ndarray = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


class Programs(NamedTuple):
    """How many tokens the programs of a run have places for, and the program of each step."""

    tokens: tuple[tuple[int, ...], ...]  # of each, in each column, of examples encoded together; (): all, with padding
    of: Callable[[int], int]  # a step's program, an index into `tokens`; the last one suits every step of its shape
    sources: tuple[int, ...]  # of each program, the number of a part of the corpus with its shape


def largest(programs: Sequence[Programs]) -> Programs:
    """One program that suits all steps of these, whose batches have one shape."""
    tokens = [each.tokens[-1] for each in programs]
    return Programs((() if () in tokens else tuple(np.max(tokens, axis=0).tolist()),), lambda step: 0, (0,))


class AnyBatches(abc.ABC):
    """The batches of a run, each a function of (seed, step)."""

    batch_size: int

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        """The batch of update `step`, counted from 0.

        It has `input_ids` and `attention_mask` (B, C, T), `index` (B,) and, if the corpus has them, `label` (B,),
        `score` (B,) or (B, C - 1), `present` (B, C), `teacher` (B, C, E), and `text` (B, C), equal numbers for equal
        texts.
        """
        return self.rows(step, slice(None))

    @abc.abstractmethod
    def rows(self, step: int, part: slice) -> dict[str, np.ndarray]:
        """Some rows of a batch; no others are read."""

    @abc.abstractmethod
    def tokens(self, step: int) -> int:
        """The tokens of the whole batch, without padding."""

    @abc.abstractmethod
    def sizes(self, steps: int, devices: int, chunk_size: int = 0, *, unpad: bool = True) -> Programs:
        """The programs of a run.

        Args:
          chunk_size: examples that each device encodes at a time; 0: all of its examples.
          unpad: do not compute padding, if there is enough of it.
        """

    def is_reading(self, step: int) -> bool:
        """Whether a thread is still reading this batch."""
        return False

    def repeated(self) -> list[str]:
        """Lines for the user about equal texts in batches that should have none."""
        return []


class AnyCorpus(abc.ABC):
    """The rows that a run trains on: those of its parts, each of which has batches of its own."""

    names: tuple[str, ...]  # of the parts; a single "" if batches mix all rows
    parts: "tuple[MixedCorpus, ...]"

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        return sum(part.num_rows for part in self.parts)

    @property
    def num_columns(self) -> int:
        """The sentences of the example with the most."""
        return max(part.num_columns for part in self.parts)

    @property
    def fewest_columns(self) -> int:
        """The sentences of the example with the fewest."""
        return min(part.fewest_columns for part in self.parts)

    @property
    def prompts(self) -> tuple[Prompts, ...]:
        """The prompts of each source; () without any."""
        prompts = tuple(item for part in self.parts for item in part.prompts or (NO_PROMPTS,))
        return prompts if any(part.prompts for part in self.parts) else ()

    @property
    def teacher(self) -> TeacherEmbeddings | None:
        """A teacher's embeddings, which all parts share; None without a teacher."""
        return self.parts[0].teacher

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the contents."""
        return sha256(*(np.frombuffer(part.fingerprint.encode(), np.uint8) for part in self.parts))

    def steps_per_epoch(self, batch_size: int) -> int:
        """The batches that read each part once; the last partial one is dropped."""
        return sum(part.steps_per_epoch(batch_size) for part in self.parts)

    @abc.abstractmethod
    def batches(self, batch_size: int, seed: int) -> AnyBatches:
        """The batches of a run."""


class MixedCorpus(AnyCorpus):
    """A corpus whose batches mix all its rows: the whole corpus of a run, or one source."""

    names = ("",)
    pairing: Pairing | None  # makes an epoch's examples from one column; None: the rows are the examples

    @property
    def parts(self) -> "tuple[MixedCorpus, ...]":  # type: ignore[override]  # which is never written
        """The corpus itself."""
        return (self,)

    @property
    @abc.abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """The places for a sentence of each column, at most T; () where all have T."""

    @property
    @abc.abstractmethod
    def _stored(self) -> tuple[int, int, bool, bool]:
        """C, T, whether rows may lack columns, and whether batches have the numbers of texts."""

    @property
    def num_columns(self) -> int:
        """The number of an example's sentences."""
        return self._stored[0] if self.pairing is None else 2

    @property
    def num_examples(self) -> int:
        """The examples of an epoch: its rows, or the pairs made from them."""
        return self.num_rows if self.pairing is None else self.pairing.count(self.num_rows)

    def steps_per_epoch(self, batch_size: int) -> int:
        """The batches of an epoch; the last partial one is dropped."""
        return self.num_examples // batch_size

    @property
    def places(self) -> np.ndarray:
        """(C,) the places for a sentence of each column."""
        return np.array(self.lengths or [self._stored[1]] * self.num_columns)

    @property
    def shape(self) -> tuple[object, ...]:
        """The shape of batches; those of one shape share a program."""
        return self.num_columns, self.lengths, *self._stored[1:]
