"""Batches that the caller puts together, as a server does: in the shapes of `encode`, from any thread."""

from collections.abc import Sequence

import numpy as np

from simcse_jax.encoding.batching import FEW, Batch, Sentence, padded_lengths
from simcse_jax.encoding.embedder import Embedder, make_embed, to_unit
from simcse_jax.models import parameters


class BatchEncoder:
    """An `Embedder` for one batch at a time. Its programs are those that `Embedder.encode` compiles."""

    def __init__(self, embedder: Embedder, fine: bool = False):
        """With `fine`, batches are padded to more lengths that fit better: less to compute, more to compile."""
        self._embedder, self._batching = embedder, embedder.batching
        self.skipped = (
            0 if embedder.include_prompt else embedder.tokenizer.count_prompt(embedder.prompt, embedder.max_length)
        )
        self._function = make_embed(
            embedder.graph, embedder.pooler, embedder.use_head, embedder.sharding, embedder.modules, self.skipped
        )
        self._params = {**parameters.sentence_encoder(embedder.params), **embedder.module_weights}
        self._lengths = padded_lengths(fine, embedder.max_length)
        self.dimension = embedder.dimension
        self.max_length = embedder.max_length

    @property
    def workers(self) -> int:
        """How many threads should encode: on a GPU or TPU, one prepares a batch while another one's is computed."""
        return self._batching.threads if self._batching.on_cpu else 2

    def tokenize(self, texts: Sequence[str]) -> list[Sentence]:
        """Sentences as tokens, with the prompt before each; those that are too long are cut, and say so."""
        prompted = [self._embedder.prompt + text for text in texts]
        tokens, too_long = self._embedder.tokenizer.tokenize(prompted, self.max_length)
        cut = set(too_long)
        return [Sentence(row, ids, row in cut) for row, ids in enumerate(tokens)]

    def padded(self, sentence: Sentence) -> int:
        """The length that a sentence is padded to, in tokens."""
        return self._lengths[np.searchsorted(self._lengths, len(sentence.ids))]

    def sizes(self, length: int) -> list[int]:
        """The numbers of rows that a batch of this length may have, smallest first."""
        few, full = self._batching.round_up(FEW), self._batching.size(length)
        return [few, full] if few < full else [full]

    def size(self, length: int, waiting: int) -> int:
        """The rows of the next batch of this length, for which so many sentences wait.

        A program computes all of its rows. Several small batches cost a CPU less than a large one with empty rows; a
        GPU or TPU takes about the same time for both.
        """
        *_, full = sizes = self.sizes(length)
        worth = full // 2 if self._batching.on_cpu else sizes[0] + 1
        return full if waiting >= worth else sizes[0]

    def encode(self, sentences: Sequence[Sentence], length: int, size: int) -> np.ndarray:
        """(B, D) float32 embeddings of B sentences.

        Args:
          sentences: at most `size`, none longer than `length`.
          length: one that `padded` gives.
          size: one that `size` gives for this length.
        """
        ids, mask = self._batching.place(Batch(list(sentences), length, size))
        embeddings = np.asarray(self._function(self._params, ids, mask))[: len(sentences)]
        return to_unit(embeddings) if self._embedder.normalize else embeddings

    def shapes(self) -> list[tuple[int, int]]:
        """The length and the size of every batch that there can be: each is a program."""
        return [(length, size) for length in self._lengths for size in self.sizes(length)]

    def warm(self, length: int, size: int) -> None:
        """Compiles the program of a shape, or reads it from the cache."""
        self.encode(self.tokenize(["a"]), length, size)
