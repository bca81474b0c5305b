"""Batches of sentences of like length, and a compiled function run on them.

A thread tokenizes some thousand sentences while the devices work on those before them, so what is held in addition to
the sentences and the result does not grow with their number. On a CPU several threads compute a batch each.
"""

import collections
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from simcse_jax.devices import mesh
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.parameters import Arrays

# A batch is padded to the next of these, so each compiles once: of few sentences, to few lengths.
LENGTHS = (16, 24, 32, 48, 64, 128, 256, 512)
FINE_LENGTHS = (*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 513, 64))
MANY = 2048  # distinct sentences: as many are worth the fine lengths' compilations
FULL_BATCH_LENGTH = 64  # up to it a batch has `batch_size` sentences; of longer ones it has fewer, not more tokens
CPU_TOKENS = 1024  # of a batch at most: its activations then stay in a core's cache
FEW = 8  # sentences: what is left over, if it is no more than these, is not worth a whole batch
TOKENIZED_AT_ONCE = 4096  # sentences
MOST_THREADS = 8  # that compute on a CPU, each of whose programs takes several cores already


class Sentence(NamedTuple):
    """A sentence as tokens."""

    row: int  # among all sentences
    ids: np.ndarray  # (T,) int32
    cut: bool  # whether it was longer than the model takes


class Batch(NamedTuple):
    """Sentences that are computed together."""

    sentences: list[Sentence]
    length: int  # that they are padded to
    size: int  # the number of sentences that they are filled up to


class Output(NamedTuple):
    """What a function gives for a batch."""

    rows: np.ndarray  # (B,) of the sentences
    cut: np.ndarray  # (B,) whether each was cut
    values: np.ndarray  # (B, …)


@dataclasses.dataclass(frozen=True)
class Batching:
    """How sentences are put into batches, and where these are computed.

    `batch_size` sentences make a batch, up to 64 tokens; fewer of longer ones, and on a CPU, which has several batches
    under way at once, no more than make 1,024 tokens. `sharding` says how a batch's rows are split over the devices of
    all processes; None: the default device. Sentences are cut at `max_length` tokens.
    """

    tokenizer: Tokenizer
    max_length: int
    batch_size: int = 64
    sharding: NamedSharding | None = None

    @property
    def devices(self) -> int:
        """Over which a batch is split."""
        return 1 if self.sharding is None else self.sharding.num_devices

    @property
    def on_cpu(self) -> bool:
        """Whether one CPU device does it all."""
        return self.devices == 1 and jax.default_backend() == "cpu"

    @property
    def threads(self) -> int:
        """One program leaves a CPU's cores idle between its products, and those of one thread run in turn."""
        return min(os.cpu_count() or 1, MOST_THREADS) if self.on_cpu else 1

    @property
    def is_local(self) -> bool:
        """Whether no other process has a part of a batch."""
        return self.sharding is None or self.sharding.is_fully_addressable

    def size(self, length: int) -> int:
        """The number of sentences in a batch that is padded to `length` tokens."""
        tokens = self.batch_size * FULL_BATCH_LENGTH
        if self.on_cpu:
            tokens = min(tokens, CPU_TOKENS)
        return self.round_up(max(min(self.batch_size, tokens // length), 1))

    def round_up(self, number: int) -> int:
        """To a multiple of the number of devices."""
        return -(-number // self.devices) * self.devices

    def place(self, batch: Batch) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
        """A batch's token ids and mask, (B, T), filled up with its first sentence to have the shape of others."""
        tokens = [sentence.ids for sentence in batch.sentences]
        ids, mask = self.tokenizer.pad(tokens + [tokens[0]] * (batch.size - len(tokens)), batch.length)
        if self.sharding is None:
            return ids, mask
        return mesh.place(lambda part: (ids[part], mask[part]), batch.size, self.sharding)


def compute(
    function: Callable[..., jax.Array], params: Arrays, sentences: Sequence[str], batching: Batching, in_flight: int
) -> Iterator[Output]:
    """Runs a compiled function on batches of sentences of like length.

    Args:
      function: takes the parameters, token ids and mask, both (B, T), and gives an array of B rows.
      params: what it takes.
      sentences: N of them.
      batching: how they are put together.
      in_flight: batches that are dispatched and not fetched, at most, on each thread; what is held does not grow
        beyond them.
    """
    # What comes back from other processes comes back by a collective, which must not run at the same time as another.
    most = batching.threads * in_flight if batching.is_local else len(sentences)
    waiting: collections.deque[tuple[np.ndarray, np.ndarray, Future[jax.Array]]] = collections.deque()
    compiling: dict[tuple[int, int], threading.Lock] = collections.defaultdict(threading.Lock)

    def run(batch: Batch, lock: threading.Lock) -> jax.Array:
        ids, mask = batching.place(batch)
        with lock:  # or two threads would compile the same
            output = function(params, ids, mask)
        return jax.block_until_ready(output) if batching.on_cpu else output

    def fetch() -> Output:
        rows, cut, output = waiting.popleft()
        return Output(rows, cut, mesh.fetch(output.result())[: len(rows)])

    with ThreadPoolExecutor(batching.threads) as pool:
        for batch in make_batches(sentences, batching):
            # Dispatched: the next batch is tokenized meanwhile. Without collectives, which are not safe in parallel.
            output = pool.submit(run, batch, compiling[batch.length, batch.size])
            rows, cut = (np.array([sentence[part] for sentence in batch.sentences]) for part in (0, 2))
            waiting.append((rows, cut, output))
            while len(waiting) > most:
                yield fetch()
        while waiting:
            yield fetch()


def make_batches(sentences: Sequence[str], batching: Batching) -> Iterator[Batch]:
    """Batches of like length, the longest first.

    What does not fill a batch of its length waits for the next sentences of that length, and at the end shares
    batches with shorter ones.
    """
    known = LENGTHS if len(sentences) < MANY else FINE_LENGTHS
    lengths = [length for length in known if length < batching.max_length] + [batching.max_length]

    def padded(sentence: Sentence) -> int:
        return lengths[np.searchsorted(lengths, len(sentence.ids))]

    by_length: dict[int, list[Sentence]] = {length: [] for length in lengths}
    for part in _tokenized(sentences, batching):
        for sentence in part:
            by_length[padded(sentence)].append(sentence)
        for length in reversed(lengths):
            size, waiting = batching.size(length), by_length[length]
            while len(waiting) >= size:
                yield Batch(waiting[:size], length, size)
                del waiting[:size]
    rest = [sentence for waiting in by_length.values() for sentence in waiting]
    rest.sort(key=lambda sentence: -len(sentence.ids))
    few = batching.round_up(FEW)
    while rest:
        length = padded(rest[0])
        size = batching.size(length)
        if len(rest) <= few < size:
            size = few
        yield Batch(rest[:size], length, size)
        del rest[:size]


def _tokenized(sentences: Sequence[str], batching: Batching) -> Iterator[list[Sentence]]:
    """All sentences, about the longest first, some thousand at a time: those after them are tokenized meanwhile."""
    order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
    parts = [order[start : start + TOKENIZED_AT_ONCE] for start in range(0, len(order), TOKENIZED_AT_ONCE)]

    def tokenize(part: np.ndarray) -> list[Sentence]:
        tokens, too_long = batching.tokenizer.tokenize([sentences[row] for row in part], batching.max_length)
        cut = set(too_long)
        return [
            Sentence(int(row), ids, place in cut) for place, (row, ids) in enumerate(zip(part, tokens, strict=True))
        ]

    with ThreadPoolExecutor(1) as pool:
        following = [pool.submit(tokenize, part) for part in parts[:1]]
        for number in range(len(parts)):
            found = following.pop().result()
            following = [pool.submit(tokenize, part) for part in parts[number + 1 : number + 2]]
            yield found
