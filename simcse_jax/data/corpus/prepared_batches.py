"""Batches of a prepared corpus: each is a function of (seed, step), and is read while the step before runs."""

import dataclasses
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from simcse_jax.data.batches import WORTH_LEAVING_OUT, small_and_large
from simcse_jax.data.corpora import AnyBatches, MixedCorpus, Programs
from simcse_jax.data.corpus.prepared import Prepared, Sentences
from simcse_jax.data.draws import ORDER, SUBSET, permutation
from simcse_jax.data.equal_texts import numbered
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.no_duplicates import hashed, remaining_duplicates, separate_duplicates
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.tokens import Prompts

AT_ONCE = 1 << 14  # positions permuted at once and cached: permuting each batch alone would be ten times slower
KEPT = 4  # batches whose locations are cached, and orders


@dataclasses.dataclass(frozen=True, eq=False)
class PreparedCorpus(MixedCorpus):
    """The rows that a run trains on."""

    prepared: Prepared
    pad_token_id: int
    labels: bool = False  # whether to read them
    subsample: int = 0  # rows drawn with the run's seed; 0 for all
    pairing: Pairing | None = None  # as in `data.batches.Corpus`
    mixture: Mixture | None = None  # the turns of several corpora in an epoch; None: one turn per row
    texts: bool = False  # whether batches have numbers of texts, by the texts that were kept
    apart: np.ndarray | None = None  # as in `data.batches.Corpus`, of all rows of the corpus

    teacher = None  # a prepared corpus has no text for a teacher

    @property
    def _stored(self) -> tuple[int, int, bool, bool]:
        return self.prepared.num_columns, self.prepared.length, self.prepared.mixed, self.texts

    @property
    def num_rows(self) -> int:
        """The rows of an epoch."""
        return self.subsample or len(self.prepared)

    @property
    def fewest_columns(self) -> int:
        """The sentences of an example that has the fewest."""
        return self.prepared.fewest_columns if self.pairing is None else 2

    @property
    def fingerprint(self) -> str:
        """The manifest's."""
        return self.prepared.fingerprint

    @property
    def prompts(self) -> tuple[Prompts, ...]:
        """The prompts that all sentences were prepared with; () if there are none."""
        return self.prepared.prompts

    @property
    def lengths(self) -> tuple[int, ...]:
        """As in `data.batches.Corpus`."""
        return self.prepared.lengths if self.pairing is None else ()

    def batches(self, batch_size: int, seed: int) -> "PreparedBatches":
        """The batches of a run."""
        return PreparedBatches(self, batch_size, seed)


class PreparedBatches(AnyBatches):
    """The batches of a run. While one is used, a thread reads the next."""

    def __init__(self, corpus: PreparedCorpus, batch_size: int, seed: int):
        self.batch_size = batch_size
        self._corpus, self._prepared, self._seed = corpus, corpus.prepared, seed
        self._chosen = permutation(len(corpus.prepared), seed, SUBSET) if corpus.subsample else None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: dict[tuple[int, int, int], Future[dict[str, np.ndarray]]] = {}
        # Of this object alone, and for both threads.
        self._order_of = functools.lru_cache(KEPT)(self._ordered)
        self._located = functools.lru_cache(KEPT)(self._locate)
        self._numbered = functools.lru_cache(KEPT)(self._number)
        self._alone = threading.Lock()  # of `_located`

    def rows(self, step: int, part: slice) -> dict[str, np.ndarray]:
        """See `AnyBatches`. Only these rows' tokens are read, but all rows are located, and their texts compared."""
        first, last, _ = part.indices(self.batch_size)
        for key in [key for key in self._ahead if key[0] < step or key[0] > step + 1]:
            self._ahead.pop(key).cancel()
        ready = self._ahead.pop((step, first, last), None)
        batch = ready.result() if ready else self._read(step, first, last)
        self._ahead[step + 1, first, last] = self._reader.submit(self._read, step + 1, first, last)
        return batch

    def is_reading(self, step: int) -> bool:
        """See `AnyBatches`."""
        return any(not part.done() for (ahead, *_), part in self._ahead.items() if ahead == step)

    def tokens(self, step: int) -> int:
        """See `AnyBatches`."""
        return int(self._places(step)[1].lengths.sum())

    def sizes(self, steps: int, devices: int, chunk_size: int = 0, *, unpad: bool = True) -> Programs:
        """See `AnyBatches`; sizes are estimated from the corpus's length counts, and `steps` has no effect.

        A program is compiled when a batch needs it. The last one has places for every token.
        """
        if not unpad:
            return Programs(((),), lambda step: 0, (0,))
        mixture, sizes = self._corpus.mixture, self._prepared.sizes
        counts = self._prepared.counts(() if mixture is None else mixture.times(sizes))
        counts = counts if self._corpus.pairing is None else np.repeat(counts, 2, axis=0)
        share = self.batch_size // devices
        together = min(chunk_size or share, share)
        starts = [first + start for first in range(0, self.batch_size, share) for start in range(0, share, together)]
        places = together * self._corpus.places
        lengths = np.tile(np.arange(counts.shape[1])[:, None], len(counts))
        small, large = np.minimum(small_and_large(lengths, together, len(starts), counts.T), places)
        limits = zip((small, large), (large, places), strict=True)
        kept = [size for size, larger in limits if size.sum() <= WORTH_LEAVING_OUT * larger.sum()]

        def of(step: int) -> int:
            lengths = self._places(step)[1].lengths.reshape(self.batch_size, -1)
            tokens = np.add.reduceat(lengths, starts, axis=0)
            return next((number for number, size in enumerate(kept) if (tokens <= size).all()), len(kept))

        return Programs((*(tuple(size.tolist()) for size in kept), ()), of, (0,) * (len(kept) + 1))

    def repeated(self) -> list[str]:
        """See `AnyBatches`."""
        if self._corpus.apart is None:
            return []
        return remaining_duplicates(self._order_of(0, 0), self._corpus.apart, self.batch_size)

    def _places(self, step: int) -> tuple[np.ndarray, Sentences]:
        with self._alone:
            return self._located(step)

    def _read(self, step: int, first: int, last: int) -> dict[str, np.ndarray]:
        rows, sentences = self._places(step)
        of_each = rows[0].size  # 2 for pairs of single sentences
        part = sentences.part(slice(first * of_each, last * of_each))
        shape = last - first, self._corpus.num_columns, self._prepared.length
        ids, mask = (array.reshape(shape) for array in self._prepared.gather(part))
        if self._corpus.pad_token_id:
            ids = np.where(mask > 0, ids, self._corpus.pad_token_id).astype(np.int32)
        batch = {"input_ids": ids, "attention_mask": mask, "index": np.arange(first, last, dtype=np.int32)}
        if self._corpus.labels:
            batch["label"] = self._prepared.labels(rows[first:last])
        if self._prepared.mixed:
            batch["present"] = part.present
        if self._corpus.texts:
            batch["text"] = self._numbered(step)[first:last]
        return batch

    def _number(self, step: int) -> np.ndarray:
        """(B, C) the numbers of a batch's texts, the same in every process."""
        rows, _ = self._places(step)
        batch_texts = self._prepared.texts(rows.ravel())
        if rows.ndim > 1:
            return numbered(batch_texts)[0].reshape(rows.shape)
        # As in `Prepared.locate`: a sentence alone is its own positive, and others that a row lacks are empty.
        columns = self._prepared.num_columns
        return numbered(
            [*row_texts, *row_texts * (len(row_texts) == 1), *[""] * columns][:columns] for row_texts in batch_texts
        )[0]

    def _locate(self, step: int) -> tuple[np.ndarray, Sentences]:
        """The rows of a batch, (B,), or (B, 2) of pairs, and where their sentences are."""
        epoch, position = divmod(step, self._corpus.steps_per_epoch(self.batch_size))
        examples = position * self.batch_size + np.arange(self.batch_size)
        if (pairing := self._corpus.pairing) is not None:
            group, place = np.divmod(examples, pairing.group)
            examples = group[:, None] * pairing.sentences + pairing.places[place]
        rows = self._order(epoch, examples)
        return rows, self._prepared.locate(rows.ravel())

    def _order(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """The rows at these positions of an epoch."""
        size = AT_ONCE if self._corpus.apart is None else self._corpus.num_rows
        blocks = positions // size
        ordered = np.empty(positions.shape, np.int64)
        for block in np.unique(blocks).tolist():
            in_block = blocks == block
            ordered[in_block] = self._order_of(epoch, block)[positions[in_block] - block * size]
        return ordered

    def _ordered(self, epoch: int, block: int) -> np.ndarray:
        """The rows of a block of an epoch's positions; of all, where rows are kept apart."""
        corpus, count = self._corpus, self._corpus.num_rows
        positions = np.arange(count)
        if corpus.apart is None:
            positions = np.arange(block * AT_ONCE, min((block + 1) * AT_ONCE, count))
        if corpus.mixture is not None:
            rows = corpus.mixture.rows(self._prepared.sizes, self._seed, epoch, positions)
        else:
            rows = permutation(count, self._seed, ORDER, epoch)(positions)
            rows = rows if self._chosen is None else self._chosen(rows)
        return (
            rows
            if corpus.apart is None
            else separate_duplicates(rows, corpus.apart, self.batch_size, self._seed, epoch)
        )


def hashed_texts(prepared: Prepared) -> np.ndarray:
    """(N, C) of all rows, as `PreparedCorpus.apart`; reads the text of all of them."""
    firsts = range(0, len(prepared), AT_ONCE)
    parts = (np.arange(first, min(first + AT_ONCE, len(prepared))) for first in firsts)
    return hashed((row for part in parts for row in prepared.texts(part)), prepared.num_columns)
