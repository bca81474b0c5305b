"""Batches put together by the caller, such as a server: of sentences of many lengths, from any thread.

On a CPU nothing is computed for padding. A program has room for a number of tokens, which lie one after the other; only
attention's products, the least part of the work, see rows of a length. So a batch of mixed lengths costs its tokens.
"""

from collections.abc import Sequence

import numpy as np

from simcse_jax.devices.backend import check_fork
from simcse_jax.encoding.batching import FEW, LENGTHS, Batching, Sentence, SentenceBatch, Shape, fitting, padded_shape
from simcse_jax.encoding.embedder import Embedder, to_unit
from simcse_jax.huggingface.tokenizer import Text
from simcse_jax.models.attention import is_long

ROW_LENGTHS = (16, 32, 64, 128, 256, 512)  # where padding is not computed
ROOMS = (16, 24, 32, 48, 64, 128, 256, 512)  # tokens of a batch without padding
SMALL = 64  # a room up to this, or to twice a row's length, has two rows of its own length: a program for all lengths
BATCH = 32  # tokens that a CPU computes in the time that a batch takes besides its tokens


class BatchEncoder:
    """An `Embedder` for one batch at a time."""

    def __init__(self, embedder: Embedder):
        check_fork()
        self._embedder, self._batching = embedder, embedder.batching
        self.dimension, self.max_length = embedder.dimension, embedder.max_length
        self.skipped = embedder.skipped
        self._params = embedder.arrays
        self._shapes = shapes_by_length(self._batching)
        self._lengths = [*self._shapes]
        programs = embedder.programs
        self._functions = {shape: programs(None if shape.is_padded else shape.tokens) for shape in self.shapes()}
        self.most = max(shape.rows for shape in self.shapes())  # sentences of a batch

    @property
    def workers(self) -> int:
        """How many threads should encode: on a GPU or TPU, one prepares a batch while another one's is computed."""
        return self._batching.threads if self._batching.on_cpu else 2

    def tokenize(self, texts: Sequence[Text]) -> list[Sentence]:
        """Sentences as tokens, with the prompt before each; those that are too long are cut, and say so."""
        prompted = self._embedder.prompted(texts)
        tokens, cut = self._embedder.tokenizer.tokenize(prompted, self.max_length)
        return [Sentence(row, ids, cut.get(row, 0)) for row, ids in enumerate(tokens)]

    def first_tokens(self, texts: Sequence[str], most: int) -> list[str]:
        """The beginning of each text: its first `most` tokens, special ones not counted."""
        return self._embedder.tokenizer.first_tokens(texts, most)

    def row_length(self, sentence: Sentence) -> int:
        """The length of the shortest rows that have room for a sentence, in tokens."""
        return fitting(self._lengths, sentence)

    def choose(self, length: int, sizes: Sequence[int]) -> tuple[Shape, list[int]]:
        """The shape of the next batch, and which of the sentences that wait are in it; the first one always is.

        A program computes all of its places, so a CPU takes the batch with most tokens for its time: one text alone is
        in one of its size. A GPU or TPU takes about the same time for any batch.

        Args:
          length: the row length of the first sentence.
          sizes: the tokens of sentences of this row length or a smaller one.
        """
        choices = [(shape, shape.take(sizes)) for shape in self._shapes[length] if sizes[0] <= shape.tokens]
        if not self._batching.on_cpu:
            return next((choice for choice in choices if len(choice[1]) == len(sizes)), choices[-1])

        def worth(choice: tuple[Shape, list[int]]) -> tuple[float, int]:
            shape, taken = choice
            return sum(sizes[place] for place in taken) / (BATCH + shape.tokens), shape.tokens

        return max(choices, key=worth)

    def encode(self, sentences: Sequence[Sentence], shape: Shape) -> np.ndarray:
        """(B, D) float32 embeddings of B sentences."""
        ids, mask = self._batching.place(SentenceBatch(list(sentences), shape))
        embeddings = np.asarray(self._functions[shape](self._params, ids, mask))[: len(sentences)]
        return to_unit(embeddings) if self._embedder.normalize else embeddings

    def shapes(self) -> list[Shape]:
        """The shapes of all possible batches; each is a program."""
        return [*dict.fromkeys(shape for length in self._lengths for shape in self._shapes[length])]

    def warm(self, shape: Shape) -> None:
        """Compiles the program of a shape, or reads it from the cache."""
        (sentence,) = self.tokenize(["a"])
        self.encode([sentence._replace(ids=sentence.ids[: shape.length])], shape)  # a prompt may be longer


def shapes_by_length(batching: Batching) -> dict[int, list[Shape]]:
    """For each length of a row, the shortest first, the shapes with such rows, the smallest first."""
    lengths = ROW_LENGTHS if batching.on_cpu else LENGTHS
    return {
        length: _shapes(length, batching)
        for length in [*(size for size in lengths if size < batching.max_length), batching.max_length]
    }


def _shapes(length: int, batching: Batching) -> list[Shape]:
    if not batching.on_cpu or is_long(length):
        few, full = batching.round_up(FEW), batching.size(length)
        return [padded_shape(rows, length) for rows in ([few, full] if few < full else [full])]
    rows = {room: room if room <= max(SMALL, 2 * length) else length for room in ROOMS}
    shapes = (batching.shape_without_padding(min(most, batching.max_length), room) for room, most in rows.items())
    return [*dict.fromkeys(shapes)]
