"""The token ids of a corpus in memory, and its batches, each a function of (seed, step)."""

import dataclasses
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from simcse_jax.data.corpora import AnyBatches, MixedCorpus, Programs, TeacherEmbeddings
from simcse_jax.data.draws import epoch_generator
from simcse_jax.data.examples import Examples
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.no_duplicates import remaining_duplicates, separate_duplicates
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.tokens import Lengths, Prompts, padded_length, token_ids
from simcse_jax.host.storage import sha256
from simcse_jax.huggingface.tokenizer import Tokenizer

WORTH_LEAVING_OUT = 0.95  # padding is left out if at most this share of a batch is tokens
MOST = 0.9  # the share of batches that fit the small program
EXTREME = 4.5  # the large program fits this many standard deviations above the mean
LOOKED_AT = 2**18  # steps whose tokens are counted before training, which takes seconds
MANY_STEPS = 500  # a second compilation pays off from this many steps on

ROWWISE = ("input_ids", "attention_mask", "labels", "present", "scores", "texts", "apart")  # arrays of a corpus


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus(MixedCorpus):
    """N tokenized examples of C columns, padded to the single length T that the run is compiled for."""

    input_ids: np.ndarray  # (N, C, T) int32
    attention_mask: np.ndarray  # (N, C, T) int8
    labels: np.ndarray | None = None  # (N,) int32
    present: np.ndarray | None = None  # (N, C) bool, False for columns that a row lacks; None: every row has all
    group: int = 1  # rows that stay together, in order, in every epoch
    pairing: Pairing | None = None  # makes an epoch's examples from one column; None: the rows are the examples
    scores: np.ndarray | None = None  # (N,) float32, or (N, C - 1) of positives and hard negatives
    teacher: TeacherEmbeddings | None = None
    texts: np.ndarray | None = None  # (N, C) int32, equal for equal texts (`data.equal_texts`); None: not needed
    apart: np.ndarray | None = None  # (N, C) as `texts`, -1 for none: no two rows of a batch share one; None: they may
    lengths: tuple[int, ...] = ()  # the places for a sentence of each column, at most T; () for T in all
    sizes: tuple[int, ...] = ()  # the rows of each of several sources, in order; () for a single one
    mixture: Mixture | None = None  # the turns of the sources in an epoch; None: one turn per row
    prompts: tuple[Prompts, ...] = ()  # of each source; () for none
    cut: int = 0  # the number of sentences that were cut

    @property
    def _stored(self) -> tuple[int, int, bool, bool]:
        return *self.input_ids.shape[1:], self.present is not None, self.texts is not None

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.input_ids)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all rows, and of the sources' sizes if the order depends on them, and of which texts are equal."""
        sizes = None if self.mixture is None else np.array(self.sizes)
        arrays = (self.input_ids, self.labels, self.present, self.scores, sizes, self.texts, self.apart)
        return sha256(*(array for array in arrays if array is not None))

    def batches(self, batch_size: int, seed: int) -> "Batches":
        """The batches of a run."""
        return Batches(self, batch_size, seed)

    @property
    def fewest_columns(self) -> int:
        """The number of sentences in the example with the fewest."""
        return self.num_columns if self.present is None else int(self.present.sum(axis=1).min())

    def only(self, rows: np.ndarray | slice) -> "Corpus":
        """The corpus of these rows, as one source, with the columns and places of all rows."""
        arrays = {name: array for name in ROWWISE if (array := getattr(self, name)) is not None}
        taken: dict[str, Any] = {name: array[rows] for name, array in arrays.items()}
        teacher = self.teacher and self.teacher._replace(places=self.teacher.places[rows])
        return dataclasses.replace(self, **taken, teacher=teacher, sizes=())

    def of_source(self, number: int) -> "Corpus":
        """The rows of one of several sources, with only the columns and places that it needs."""
        first = sum(self.sizes[:number])
        part = self.only(slice(first, first + self.sizes[number]))
        present, scores, teacher = part.present, part.scores, part.teacher
        width = part.input_ids.shape[1] if present is None else int(present.sum(axis=1).max())
        longest = np.count_nonzero(part.attention_mask[:, :width], axis=2).max(axis=0)
        most = max(padded_length(int(longest.max()), part.input_ids.shape[2]), 1)
        split = self.lengths and width > 1
        lengths = tuple(padded_length(length, most) for length in longest.tolist()) if split else ()
        return dataclasses.replace(
            part,
            input_ids=part.input_ids[:, :width, :most],
            attention_mask=part.attention_mask[:, :width, :most],
            scores=scores if scores is None or scores.ndim == 1 else scores[:, : width - 1],
            present=None if present is None or present[:, :width].all() else present[:, :width],
            teacher=teacher and teacher._replace(places=teacher.places[:, :width]),
            lengths=lengths,
            prompts=self.prompts[number : number + 1],
        )

    def take(self, array: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Rows (B, …) of an array of the corpus (N, C, …); for pairs, from row numbers (B, 2) in a single column."""
        return array[rows] if self.pairing is None else array[rows, 0]


def tokenize(
    examples: Examples, tokenizer: Tokenizer, max_length: int | Lengths, prompts: Sequence[Prompts] = ()
) -> Corpus:
    """Tokenizes every sentence once.

    T is the longest sentence's length, rounded up to a multiple of 8 and at most `max_length`. One length per run means
    one compilation, and a random batch usually has a sentence of nearly that length anyway. If columns have separate
    lengths, each is found this way, and T is the largest.
    """
    lengths = Lengths(max_length, max_length) if isinstance(max_length, int) else max_length
    columns, cut = token_ids(examples, tokenizer, lengths, prompts)
    sizes = [padded_length(max(map(len, column)), max(lengths)) for column in columns]
    padded = [tokenizer.pad(column, max(sizes)) for column in columns]
    ids, mask = (np.stack(arrays, 1) for arrays in zip(*padded, strict=True))
    return Corpus(
        ids,
        mask.astype(np.int8),
        examples.labels,
        examples.present,
        scores=examples.scores,
        lengths=() if isinstance(max_length, int) or len(sizes) == 1 else tuple(sizes),
        sizes=() if examples.sources is None else tuple(np.bincount(examples.sources).tolist()),
        prompts=tuple(prompts) if columns[1:] else tuple(Prompts(prompt.anchor, prompt.anchor) for prompt in prompts),
        cut=cut,
    )


class Batches(AnyBatches):
    """The batches of a run. Its only state is a cache of the last epoch's order."""

    def __init__(self, corpus: Corpus, batch_size: int, seed: int):
        self._corpus, self.batch_size, self._seed = corpus, batch_size, seed
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def rows(self, step: int, part: slice) -> dict[str, np.ndarray]:
        """See `AnyBatches`."""
        rows = self._rows_of(step)[part]
        batch = {
            "input_ids": self._corpus.take(self._corpus.input_ids, rows),
            "attention_mask": self._corpus.take(self._corpus.attention_mask, rows).astype(np.int32),
            "index": np.arange(self.batch_size, dtype=np.int32)[part],
        }
        further = {"label": self._corpus.labels, "present": self._corpus.present, "score": self._corpus.scores}
        if self._corpus.teacher is not None:
            places = self._corpus.take(self._corpus.teacher.places, rows)
            batch["teacher"] = self._corpus.teacher.of(places)
        if self._corpus.texts is not None:
            batch["text"] = self._corpus.take(self._corpus.texts, rows)
        return batch | {name: array[rows] for name, array in further.items() if array is not None}

    def tokens(self, step: int) -> int:
        """See `AnyBatches`."""
        return int(np.count_nonzero(self._corpus.take(self._corpus.attention_mask, self._rows_of(step))))

    def _rows_of(self, step: int) -> np.ndarray:
        """The corpus rows of a batch, (B,), or of its pairs, (B, 2)."""
        epoch, position = divmod(step, self._corpus.steps_per_epoch(self.batch_size))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._examples(epoch)
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]

    def sizes(self, steps: int, devices: int, chunk_size: int = 0, *, unpad: bool = True) -> Programs:
        """See `AnyBatches`. One program or two, the large one last; with little padding, padding stays.

        Token counts per batch are roughly normal. The small program fits 90% of batches; the large one fits
        mean + 4.5 σ, or this run's largest batch. So runs that differ in their seeds nearly always share programs.
        """
        if not (unpad and steps):
            return _programs(((),), np.zeros(1, np.int8))
        lengths = np.count_nonzero(self._corpus.attention_mask, axis=2)
        share = self.batch_size // devices
        together = min(chunk_size or share, share)
        starts = [first + start for first in range(0, self.batch_size, share) for start in range(0, share, together)]
        most = self._most_tokens(lengths, min(steps, LOOKED_AT), starts)
        if self._corpus.pairing:
            lengths = np.repeat(lengths, 2, axis=1)  # either sentence of a pair may be any
        small, large = small_and_large(lengths, together, len(starts), self._times())
        large = np.maximum(large, most.max(axis=0))
        by_column = together * self._corpus.places
        places = int(by_column.sum())
        if self._corpus.lengths:
            small, large = np.minimum(small, by_column), np.minimum(large, by_column)

        def size(tokens: np.ndarray) -> tuple[int, ...]:
            return tuple(tokens.tolist()) if tokens.sum() <= WORTH_LEAVING_OUT * places else ()

        if steps < MANY_STEPS or not size(small) or small.sum() > WORTH_LEAVING_OUT * large.sum():
            numbers = np.zeros(len(most), np.int8)
            tokens: tuple[tuple[int, ...], ...] = (size(large),)
        else:
            tokens, numbers = (size(small), size(large)), np.any(most > small, axis=1).astype(np.int8)
        if len(most) == steps:
            return _programs(tokens, numbers)
        return _programs((*tokens, ()), np.append(numbers, np.int8(len(tokens))))  # where padding stays

    def _most_tokens(self, lengths: np.ndarray, steps: int, starts: list[int]) -> np.ndarray:
        """(steps, C): the most tokens encoded together; `starts` are the parts' first rows."""
        per_epoch = self._corpus.steps_per_epoch(self.batch_size)
        largest = []
        for epoch, first in enumerate(range(0, steps, per_epoch)):
            rows = self._examples(epoch)[: min(steps - first, per_epoch) * self.batch_size]
            by_batch = self._corpus.take(lengths, rows).reshape(-1, self.batch_size, self._corpus.num_columns)
            largest.append(np.add.reduceat(by_batch, starts, axis=1).max(axis=1))
        return np.concatenate(largest)

    def repeated(self) -> list[str]:
        """See `AnyBatches`."""
        if self._corpus.apart is None:
            return []
        return remaining_duplicates(self._examples(0), self._corpus.apart, self.batch_size)

    def _times(self) -> np.ndarray | None:
        """(N,) how often each row is read in an epoch; None for once each."""
        mixture, sizes = self._corpus.mixture, self._corpus.sizes
        return None if mixture is None else np.repeat(mixture.times(sizes), sizes)

    def _examples(self, epoch: int) -> np.ndarray:
        """The corpus rows in the order of an epoch, (N,), or those of its pairs, (M, 2)."""
        order = self._permuted(epoch)
        if self._corpus.apart is not None:
            return separate_duplicates(order, self._corpus.apart, self.batch_size, self._seed, epoch)
        return order if self._corpus.pairing is None else self._corpus.pairing.pairs(order)

    def _permuted(self, epoch: int) -> np.ndarray:
        """(N,) the corpus rows in an order of the epoch."""
        if self._corpus.mixture is not None:
            places = np.arange(self._corpus.mixture.total)
            return self._corpus.mixture.rows(self._corpus.sizes, self._seed, epoch, places)
        group = self._corpus.group
        order = epoch_generator(self._seed, epoch).permutation(len(self._corpus.input_ids) // group)
        return (order[:, None] * group + np.arange(group)).ravel()


def _programs(tokens: tuple[tuple[int, ...], ...], numbers: np.ndarray) -> Programs:
    """Programs by their steps, (steps,) int8; all steps beyond `LOOKED_AT` share the last element."""
    return Programs(tokens, lambda step: int(numbers[min(step, len(numbers) - 1)]), (0,) * len(tokens))


def small_and_large(
    lengths: np.ndarray, together: int, parts: int, times: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Two sizes (C,) for the tokens of `together` examples: one for a share `MOST` of batches, one for nearly all.

    A batch fits if all its parts fit in every column.

    Args:
      lengths: (N, C) tokens of each sentence.
      parts: the parts of a batch, encoded one after another or on different devices.
      times: (N,) how often each row is read, or (N, C) for each column; None if equally often.
    """
    of_one = np.average(lengths, axis=0, weights=times)
    spread = np.sqrt(np.average(np.square(lengths - of_one), axis=0, weights=times))
    mean, deviation = together * of_one, together**0.5 * spread
    usual = NormalDist().inv_cdf(MOST ** (1 / (parts * lengths.shape[1])))
    small, large = (np.ceil(mean + factor * deviation).astype(np.int64) for factor in (usual, EXTREME))
    return small, large
