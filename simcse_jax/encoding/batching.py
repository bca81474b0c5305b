"""Batches of sentences of similar length, and a compiled function run on them.

A thread tokenizes some thousand sentences while the devices work on those before them, so memory for anything but the
sentences and the result does not grow with their number. On a CPU several threads compute a batch each.
"""

import collections
import contextlib
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
from simcse_jax.devices.backend import check_fork
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.attention import is_long
from simcse_jax.models.parameters import Arrays

# A batch is padded to the next of these lengths, and each compiles once. Few sentences use few lengths.
LENGTHS = (16, 24, 32, 48, 64, 128, 256, 512)
CPU_LENGTHS = (8, 12, *LENGTHS)  # other devices gain nothing from so short rows
FINE_LENGTHS = (*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 513, 64))
# So many distinct sentences are worth compiling the fine lengths: on a CPU, and on others, which take seconds for a
# length and encode thousands of sentences in one.
MANY, MANY_ELSEWHERE = 2**11, 2**15
PACKED_LENGTHS = (32, 128, 512)  # of rows, where padding is not computed
ROOM = 512  # tokens of a batch without padding
SPARE = 2  # times as many places have its rows: attention's products at those that stay empty cost a CPU 2 to 9%
FULL_BATCH_LENGTH = 64  # tokens; batches of longer sentences have fewer of them instead of more tokens
CPU_TOKENS = 1024  # in a batch at most, so that its activations stay in a core's cache
FEW = 8  # sentences; if no more are left over, they are not worth a whole batch. A CPU computes one alone as one
TOKENIZED_AT_ONCE = 4096  # sentences
MOST_THREADS = 8  # on a CPU; each thread's program already uses several cores


class Sentence(NamedTuple):
    """A sentence as tokens."""

    row: int  # its place among all sentences
    ids: np.ndarray  # (T,) int32
    cut: bool  # whether it was too long for the model


class Shape(NamedTuple):
    """The shape of a batch; each has a program."""

    rows: int
    length: int  # of a row, in tokens
    tokens: int  # that its sentences have together, at most; the places of all rows where padding is computed

    @property
    def is_padded(self) -> bool:
        """Whether padding is computed."""
        return self.tokens == self.rows * self.length

    def take(self, sizes: Sequence[int]) -> list[int]:
        """Which of the sentences with so many tokens each are in a batch of this shape: all that fit, in turn."""
        taken: list[int] = []
        left = self.tokens
        for place, size in enumerate(sizes):
            if size <= left and len(taken) < self.rows:
                taken.append(place)
                left -= size
        return taken


class Batch(NamedTuple):
    """Sentences that are encoded together."""

    sentences: list[Sentence]
    shape: Shape


class Output(NamedTuple):
    """The result of a function for a batch."""

    rows: np.ndarray  # (B,) places of the sentences
    cut: np.ndarray  # (B,) whether each was cut
    values: np.ndarray  # (B, …)


@dataclasses.dataclass(frozen=True)
class Batching:
    """How sentences are put into batches, and where these are computed.

    A batch has `batch_size` sentences of up to 64 tokens, or fewer longer ones. On a CPU, which computes several
    batches at once, it has at most 1,024 tokens. `sharding` splits a batch's rows over the devices of all processes;
    None uses the default device. Sentences are cut at `max_length` tokens.
    """

    tokenizer: Tokenizer
    max_length: int
    batch_size: int = 64
    sharding: NamedSharding | None = None

    @property
    def devices(self) -> int:
        """The number of devices that share a batch."""
        return 1 if self.sharding is None else self.sharding.num_devices

    @property
    def on_cpu(self) -> bool:
        """Whether the only device is a CPU."""
        return self.devices == 1 and jax.default_backend() == "cpu"

    @property
    def threads(self) -> int:
        """Several on a CPU: one program leaves cores idle between its products, and a thread runs one at a time."""
        return min(os.cpu_count() or 1, MOST_THREADS) if self.on_cpu else 1

    @property
    def is_local(self) -> bool:
        """Whether this process has all devices."""
        return self.sharding is None or self.sharding.is_fully_addressable

    def packed(self, length: int, room: int) -> Shape:
        """A batch without padding: sentences of up to `length` tokens, and of `room` tokens together."""
        rows = min(SPARE * room // length, self.batch_size)
        return Shape(rows, length, min(room, rows * length))

    def size(self, length: int) -> int:
        """The number of sentences in a batch that is padded to `length` tokens."""
        tokens = self.batch_size * FULL_BATCH_LENGTH
        if self.on_cpu:
            tokens = min(tokens, CPU_TOKENS)
        return self.round_up(max(min(self.batch_size, tokens // length), 1))

    def round_up(self, number: int) -> int:
        """Rounds up to a multiple of the number of devices."""
        return -(-number // self.devices) * self.devices

    def place(self, batch: Batch) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
        """A batch's token ids and mask, (B, T), filled up so that few shapes occur.

        With its first sentence, or, where padding is not computed, with rows that have no tokens.
        """
        tokens, shape = [sentence.ids for sentence in batch.sentences], batch.shape
        ids, mask = self.tokenizer.pad(tokens + [tokens[0]] * (shape.rows - len(tokens)), shape.length)
        if not shape.is_padded:
            mask[len(tokens) :] = 0
        if self.sharding is None:
            return ids, mask
        return mesh.place(lambda part: (ids[part], mask[part]), shape.rows, self.sharding)


def compute(
    function: Callable[..., jax.Array],
    params: Arrays,
    sentences: Sequence[str],
    batching: Batching,
    in_flight: int,
    packed: Callable[[int], Callable[..., jax.Array]] | None = None,
) -> Iterator[Output]:
    """Runs a compiled function on batches of sentences of similar length.

    Args:
      function: takes the parameters, token ids and mask, both (B, T), and returns an array of B rows.
      in_flight: the maximum number of batches that are dispatched and not fetched, on each thread.
      packed: gives the same function for batches of at most so many tokens, without computing padding. A CPU runs it
        on few sentences.
    """
    check_fork()
    # Results from other processes arrive by a collective, and no other collective may run at the same time.
    most = batching.threads * in_flight if batching.is_local else len(sentences)
    waiting: collections.deque[tuple[np.ndarray, np.ndarray, Future[jax.Array]]] = collections.deque()
    compiling: dict[Shape, threading.Lock] = collections.defaultdict(threading.Lock)

    def run(batch: Batch, lock: threading.Lock) -> jax.Array:
        ids, mask = batching.place(batch)
        program = packed(batch.shape.tokens) if packed and not batch.shape.is_padded else function
        with lock:  # two threads would otherwise compile the same shape
            output = program(params, ids, mask)
        return jax.block_until_ready(output) if batching.on_cpu else output

    def fetch() -> Output:
        rows, cut, output = waiting.popleft()
        return Output(rows, cut, mesh.fetch(output.result())[: len(rows)])

    with _threads(batching.threads) as pool:
        packs = packed is not None and batching.on_cpu and FEW < len(sentences) < MANY
        for batch in make_packed(sentences, batching) if packs else make_batches(sentences, batching):
            # The next batch is tokenized while this one runs. There are no collectives, which are unsafe in parallel.
            output = pool.submit(run, batch, compiling[batch.shape])
            rows, cut = (np.array([sentence[part] for sentence in batch.sentences]) for part in (0, 2))
            waiting.append((rows, cut, output))
            while len(waiting) > most:
                yield fetch()
        while waiting:
            yield fetch()


@contextlib.contextmanager
def _threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that ends with the block; after Ctrl-C it drops what has not begun, and does not wait for what has."""
    pool = ThreadPoolExecutor(number)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def padded_lengths(count: int, batching: Batching) -> list[int]:
    """The lengths, in tokens, to which batches of `count` sentences are padded: more that fit better for many."""
    few, many = (CPU_LENGTHS, MANY) if batching.on_cpu else (LENGTHS, MANY_ELSEWHERE)
    known = FINE_LENGTHS if count >= many else few
    return [*(length for length in known if length < batching.max_length), batching.max_length]


def make_batches(sentences: Sequence[str], batching: Batching) -> Iterator[Batch]:
    """Batches of similar length, the longest first.

    Sentences that do not fill a batch wait for others of their length. At the end they share batches with shorter ones.
    """
    lengths = padded_lengths(len(sentences), batching)

    def padded(sentence: Sentence) -> int:
        return lengths[np.searchsorted(lengths, len(sentence.ids))]

    by_length: dict[int, list[Sentence]] = {length: [] for length in lengths}
    for part in _tokenized(sentences, batching):
        for sentence in part:
            by_length[padded(sentence)].append(sentence)
        for length in reversed(lengths):
            size, waiting = batching.size(length), by_length[length]
            while len(waiting) >= size:
                yield Batch(waiting[:size], Shape(size, length, size * length))
                del waiting[:size]
    rest = [sentence for waiting in by_length.values() for sentence in waiting]
    rest.sort(key=lambda sentence: -len(sentence.ids))
    few = 1 if batching.on_cpu and len(sentences) == 1 else batching.round_up(FEW)
    while rest:
        length = padded(rest[0])
        size = batching.size(length)
        if len(rest) <= few < size:
            size = few
        yield Batch(rest[:size], Shape(size, length, size * length))
        del rest[:size]


def make_packed(sentences: Sequence[str], batching: Batching) -> Iterator[Batch]:
    """Batches without padding, the longest sentences first; short ones fill the room that these leave.

    So few sentences need two or three programs, where padding to similar lengths needs eight, and compiling, or reading
    a compiled program, takes as long as they do.
    """
    rest = [sentence for part in _tokenized(sentences, batching) for sentence in part]
    rest.sort(key=lambda sentence: -len(sentence.ids))
    lengths = [*(length for length in PACKED_LENGTHS if length < batching.max_length), batching.max_length]
    while rest:
        length = lengths[np.searchsorted(lengths, len(rest[0].ids))]
        shape = batching.packed(length, ROOM)
        if is_long(length):  # attention then is computed in blocks of padded rows
            size = batching.size(length)
            shape = Shape(size, length, size * length)
        taken = shape.take([len(sentence.ids) for sentence in rest])
        yield Batch([rest[place] for place in taken], shape)
        rest = [sentence for place, sentence in enumerate(rest) if place not in set(taken)]


def _tokenized(sentences: Sequence[str], batching: Batching) -> Iterator[list[Sentence]]:
    """All sentences, roughly the longest first, some thousand at a time. The next ones are tokenized meanwhile."""
    order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
    parts = [order[start : start + TOKENIZED_AT_ONCE] for start in range(0, len(order), TOKENIZED_AT_ONCE)]

    def tokenize(part: np.ndarray) -> list[Sentence]:
        tokens, too_long = batching.tokenizer.tokenize([sentences[row] for row in part], batching.max_length)
        cut = set(too_long)
        return [
            Sentence(int(row), ids, place in cut) for place, (row, ids) in enumerate(zip(part, tokens, strict=True))
        ]

    with _threads(1) as pool:
        following = [pool.submit(tokenize, part) for part in parts[:1]]
        for number in range(len(parts)):
            found = following.pop().result()
            following = [pool.submit(tokenize, part) for part in parts[number + 1 : number + 2]]
            yield found
