"""Token ids of a whole corpus, and the batch of any step: a function of (seed, step) alone."""

import hashlib
from typing import NamedTuple

import numpy as np

from simcse_jax.data.sources import Examples
from simcse_jax.models.tokenizer import Tokenizer

LENGTH_MULTIPLE = 8  # lengths are rounded up to it


class Corpus(NamedTuple):
    """N tokenized examples of C columns, padded to the one length T that this run is compiled for."""

    input_ids: np.ndarray  # (N, C, T) int32
    attention_mask: np.ndarray  # (N, C, T) int8
    labels: np.ndarray | None = None  # (N,) int32


def sha256(*arrays: np.ndarray) -> str:
    """A fingerprint of arrays: their shapes and their contents."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8))
    return digest.hexdigest()


def tokenize(examples: Examples, tokenizer: Tokenizer, max_length: int) -> Corpus:
    """Tokenizes every sentence once.

    T is the longest sentence's length, cut at `max_length` and rounded up to a multiple of 8: one length a run
    means one compilation, and a random batch of a usual size has a sentence of nearly that length anyway.
    """
    columns = [tokenizer(column, max_length) for column in examples.columns]
    longest = max(len(row) for column in columns for row in column)
    length = min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, max_length)
    padded = [tokenizer.pad(column, length) for column in columns]
    ids, mask = (np.stack(arrays, 1) for arrays in zip(*padded, strict=True))
    return Corpus(ids, mask.astype(np.int8), examples.labels)


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """The last partial batch of an epoch is dropped."""
    return num_examples // batch_size


class Batches:
    """The batches of a run. State: none that matters; the last epoch's order is kept so as not to redo it."""

    def __init__(self, corpus: Corpus, batch_size: int, seed: int):
        self._corpus, self.batch_size, self._seed = corpus, batch_size, seed
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        """The batch of update `step`, counted from 0.

        It has `input_ids` and `attention_mask` (B, C, T), `index` (B,) and, of a corpus with labels, `label` (B,).
        """
        return self.rows(step, slice(None))

    def rows(self, step: int, part: slice) -> dict[str, np.ndarray]:
        """These rows of a batch; no others are read."""
        epoch, position = divmod(step, steps_per_epoch(len(self._corpus.input_ids), self.batch_size))
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
            self._epoch, self._order = epoch, generator.permutation(len(self._corpus.input_ids))
        rows = self._order[position * self.batch_size : (position + 1) * self.batch_size][part]
        batch = {
            "input_ids": self._corpus.input_ids[rows],
            "attention_mask": self._corpus.attention_mask[rows].astype(np.int32),
            "index": np.arange(self.batch_size, dtype=np.int32)[part],
        }
        return batch if self._corpus.labels is None else batch | {"label": self._corpus.labels[rows]}
