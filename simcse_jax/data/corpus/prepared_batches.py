"""Batches of a prepared corpus: each is a function of (seed, step), and is read while the step before runs."""

import dataclasses
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import NormalDist

import numpy as np

from simcse_jax.data.batches import WORTH_LEAVING_OUT
from simcse_jax.data.corpora import AnyBatches, MixedCorpus, Programs
from simcse_jax.data.corpus.prepared import Prepared, Sentences, texts
from simcse_jax.data.draws import ORDER, SUBSET, permutation
from simcse_jax.data.equal_texts import numbered
from simcse_jax.data.mixture import Mixture
from simcse_jax.data.no_duplicates import hashed, remaining_duplicates, separate_duplicates
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.tokens import Prompts

AT_ONCE = 1 << 14  # positions permuted at once and cached: permuting each batch alone would be ten times slower
SHARES = (0.9, 0.99, 0.999, 0.999997)  # candidates for the share of batches that fit the smaller program
KEPT = 4  # batches whose locations are cached
EPOCHS = 2  # whose whole order is cached, where rows are kept apart: the last one's, while a thread reads ahead


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
        return self.prepared.manifest.fingerprint

    @property
    def prompts(self) -> tuple[Prompts, ...]:
        """The prompts that all sentences were prepared with; () if there are none."""
        return self.prepared.manifest.prompts

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
        self._rows_near = functools.lru_cache(KEPT)(self._permuted)
        self._apart = functools.lru_cache(EPOCHS)(self._kept_apart)
        self._located = functools.lru_cache(KEPT)(self._locate)
        self._numbered = functools.lru_cache(KEPT)(self._number)
        self._alone = threading.Lock()  # of `_located`
        self._comparing = threading.Lock()  # of `_numbered`, which reads texts: the step does not wait for it

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
        with self._alone:
            return int(self._located(step)[1].lengths.sum())

    def sizes(self, steps: int, devices: int, chunk_size: int = 0, *, unpad: bool = True) -> Programs:
        """See `AnyBatches`; a program is compiled when a batch needs it, so `steps` has no effect.

        The smaller program's size minimizes the mean cost of a batch, with its tokens approximated as normal from the
        corpus's length counts. The larger one has places for every token. A batch takes it if its own sentences exceed
        the smaller one, the same in every process.
        """
        if not unpad:
            return Programs(((),), lambda step: 0, (0,))
        mixture, rows = self._corpus.mixture, self._prepared.sizes
        counts = self._prepared.counts(() if mixture is None else mixture.times(rows))
        counts = counts if self._corpus.pairing is None else np.repeat(counts, 2, axis=0)
        share = self.batch_size // devices
        together = min(chunk_size or share, share)
        starts = [first + start for first in range(0, self.batch_size, share) for start in range(0, share, together)]
        places = together * self._corpus.places
        small = least_cost(counts, together, len(starts), places)
        if small.sum() > WORTH_LEAVING_OUT * places.sum():
            return Programs(((),), lambda step: 0, (0,))

        def of(step: int) -> int:
            with self._alone:
                lengths = self._located(step)[1].lengths
            return int((np.add.reduceat(lengths, starts, axis=0) > small).any())

        return Programs((tuple(small.tolist()), ()), of, (0, 0))

    def repeated(self) -> list[str]:
        """See `AnyBatches`."""
        if self._corpus.apart is None:
            return []
        with self._alone:
            return remaining_duplicates(self._apart(0), self._corpus.apart, self.batch_size)

    def _read(self, step: int, first: int, last: int) -> dict[str, np.ndarray]:
        with self._alone:
            rows, batch_sentences = self._located(step)
        part = batch_sentences.part(slice(first, last))
        self._prepared.will_need(part)
        ids, mask = self._prepared.gather(part)
        if self._corpus.pad_token_id:
            ids = np.where(mask > 0, ids, self._corpus.pad_token_id).astype(np.int32)
        batch = {"input_ids": ids, "attention_mask": mask, "index": np.arange(first, last, dtype=np.int32)}
        if self._corpus.labels:
            batch["label"] = self._prepared.labels(rows[first:last])
        if self._prepared.mixed:
            batch["present"] = part.present
        if self._corpus.texts:
            with self._comparing:
                batch["text"] = self._numbered(step)[first:last]
        return batch

    def _number(self, step: int) -> np.ndarray:
        """(B, C) the numbers of a batch's texts, the same in every process."""
        with self._alone:
            rows, _ = self._located(step)
        batch_texts = texts(self._prepared, rows.ravel())
        if rows.ndim > 1:  # pairs of single sentences
            return numbered(batch_texts)[0].reshape(rows.shape)
        # As in `Prepared.locate`: a sentence alone is its own positive, and others that a row lacks are empty.
        columns = self._prepared.num_columns
        return numbered(
            [*row_texts, *row_texts * (len(row_texts) == 1), *[""] * columns][:columns] for row_texts in batch_texts
        )[0]

    def _locate(self, step: int) -> tuple[np.ndarray, Sentences]:
        """The rows of a batch, and the locations of their sentences."""
        epoch, position = divmod(step, self._corpus.steps_per_epoch(self.batch_size))
        examples = position * self.batch_size + np.arange(self.batch_size)
        pairing = self._corpus.pairing
        if pairing is not None:
            group, place = np.divmod(examples, pairing.group)
            examples = group[:, None] * pairing.sentences + pairing.places[place]
        rows = self._order(epoch, examples)
        return rows, self._prepared.locate(rows)

    def _order(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """The rows at these positions of an epoch."""
        if self._corpus.apart is not None:
            return self._apart(epoch)[positions]
        blocks = positions // AT_ONCE
        ordered = np.empty(positions.shape, np.int64)
        for block in np.unique(blocks).tolist():
            in_block = blocks == block
            ordered[in_block] = self._rows_near(epoch, block)[positions[in_block] - block * AT_ONCE]
        return ordered

    def _permuted(self, epoch: int, block: int) -> np.ndarray:
        first = block * AT_ONCE
        return self._rows_at(epoch, np.arange(first, min(first + AT_ONCE, self._corpus.num_rows)))

    def _kept_apart(self, epoch: int) -> np.ndarray:
        """(N,) the rows of a whole epoch."""
        assert self._corpus.apart is not None
        order = self._rows_at(epoch, np.arange(self._corpus.num_rows))
        return separate_duplicates(order, self._corpus.apart, self.batch_size, self._seed, epoch)

    def _rows_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        if self._corpus.mixture is not None:
            return self._corpus.mixture.rows(self._prepared.sizes, self._seed, epoch, positions)
        rows = permutation(self._corpus.num_rows, self._seed, ORDER, epoch)(positions)
        return rows if self._chosen is None else self._chosen(rows)


def hashed_texts(prepared: Prepared) -> np.ndarray:
    """(N, C) of all rows, as `PreparedCorpus.apart`; reads the text of all of them."""
    firsts = range(0, len(prepared), AT_ONCE)
    parts = (np.arange(first, min(first + AT_ONCE, len(prepared))) for first in firsts)
    return hashed((row for part in parts for row in texts(prepared, part)), prepared.num_columns)


def least_cost(counts: np.ndarray, together: int, parts: int, places: int | np.ndarray) -> np.ndarray:
    """(C,) places for the tokens of `together` examples that minimize a batch's mean cost.

    With places for a share q of batches, the cost is q · places + (1 - q) · all places.

    Args:
      counts: (C, L + 1) sentences of each length.
      parts: the parts of a batch, which fits if all its parts fit in every column.
      places: of the larger program, in every column or (C,).
    """
    widths = np.broadcast_to(places, len(counts))
    lengths = np.arange(counts.shape[1])
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ lengths
    deviation = np.sqrt(share @ lengths**2 - mean**2)

    def size(fits: float) -> np.ndarray:
        usual = NormalDist().inv_cdf(fits ** (1 / (parts * len(counts))))
        tokens = np.ceil(together * mean + together**0.5 * deviation * usual)
        return np.minimum(tokens.astype(np.int64), widths)

    def cost(fits: float) -> float:
        return float(fits * size(fits).sum() + (1 - fits) * widths.sum())

    return size(min(SHARES, key=cost))
