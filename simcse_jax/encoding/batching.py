"""Batches of sentences of similar length, and a compiled function run on them.

A thread tokenizes some thousand sentences while the devices work on those before them, so memory for anything but the
sentences and the result does not grow with their number. On a CPU several threads compute a batch each; few sentences
are tokenized first, and put into those batches that take least.
"""

import bisect
import collections
import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from simcse_jax.devices import mesh
from simcse_jax.devices.backend import check_fork
from simcse_jax.huggingface.tokenizer import Text, Tokenizer
from simcse_jax.models.attention import is_long
from simcse_jax.models.parameters import Arrays

# A batch is padded to the next of these lengths, and each compiles once. Few sentences use few lengths.
LENGTHS = (16, 24, 32, 48, 64, 128, 256, 512)
CPU_LENGTHS = (8, 12, *LENGTHS)  # other devices gain nothing from so short rows
FINE_LENGTHS = (*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 513, 64))
# So many distinct sentences are worth compiling the fine lengths: on a CPU, and on others, which take seconds for a
# length and encode thousands of sentences in one.
MANY, MANY_ELSEWHERE = 2**11, 2**15
# Where padding is not computed: the lengths of rows, of which those are taken that cost least, and the tokens of a
# batch. Reading a compiled program takes about as long as encoding `PROGRAM` tokens, and compiling it more.
PACKED_LENGTHS = ((16, 64), (32, 128), (16, 32, 64, 128))
ROOM, PROGRAM = 512, 1024
SPARE = 2  # times as many places have its rows: attention's products at those that stay empty cost a CPU 2 to 9%
FULL_BATCH_LENGTH = 64  # tokens; batches of longer sentences have fewer of them instead of more tokens
CPU_TOKENS = 1024  # in a batch at most, so that its activations stay in a core's cache
FEW = 8  # sentences; if no more are left over, they are not worth a whole batch. A CPU computes one alone as one
TOKENIZED_AT_ONCE = 4096  # sentences
MOST_THREADS = 8  # on a CPU; each thread's program already uses several cores


class Sentence(NamedTuple):
    """A sentence as tokens."""

    row: int  # its place among all sentences
    ids: np.ndarray  # (T,) int32; (T, 2) where tokens have types
    cut: int  # tokens that were cut off, where it was too long for the model


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
        room = self.tokens
        for place, size in enumerate(sizes):
            if size <= room:
                taken.append(place)
                room -= size
            if not room or len(taken) == self.rows:
                break
        return taken


def padded_shape(rows: int, length: int) -> Shape:
    """Where padding is computed."""
    return Shape(rows, length, rows * length)


def fitting(lengths: Sequence[int], sentence: Sentence) -> int:
    """The first of some ascending lengths, in tokens, that has room for a sentence."""
    return lengths[bisect.bisect_left(lengths, len(sentence.ids))]


class SentenceBatch(NamedTuple):
    """Sentences that are encoded together."""

    sentences: list[Sentence]
    shape: Shape


class Output(NamedTuple):
    """The result of a function for a batch."""

    rows: np.ndarray  # (B,) places of the sentences
    cut: np.ndarray  # (B,) tokens that were cut off of each
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

    def shape_without_padding(self, length: int, room: int) -> Shape:
        """The shape of a packed batch of sentences of up to `length` tokens, at most `room` tokens together."""
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

    def place(self, batch: SentenceBatch) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
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
    sentences: Sequence[Text],
    batching: Batching,
    in_flight: int,
    unpadded: Callable[[int], Callable[..., jax.Array]] | None = None,
) -> Iterator[Output]:
    """Runs a compiled function on batches of sentences of similar length.

    Args:
      function: takes the parameters, token ids and mask, both (B, T), and returns an array of B rows.
      in_flight: the maximum number of batches that are dispatched and not fetched, on each thread.
      unpadded: gives the same function for batches of at most so many tokens, without computing padding. A CPU runs it
        on few sentences where that takes less.
    """
    check_fork()
    # Results from other processes arrive by a collective, and no other collective may run at the same time.
    most = batching.threads * in_flight if batching.is_local else len(sentences)
    waiting: collections.deque[tuple[np.ndarray, np.ndarray, Future[jax.Array]]] = collections.deque()
    compiling: dict[Shape, threading.Lock] = collections.defaultdict(threading.Lock)

    def run(batch: SentenceBatch, lock: threading.Lock) -> jax.Array:
        ids, mask = batching.place(batch)
        program = unpadded(batch.shape.tokens) if unpadded and not batch.shape.is_padded else function
        with lock:  # two threads would otherwise compile the same shape
            output = program(params, ids, mask)
        return jax.block_until_ready(output) if batching.on_cpu else output

    def fetch() -> Output:
        rows, cut, output = waiting.popleft()
        return Output(rows, cut, mesh.fetch(output.result())[: len(rows)])

    with _threads(batching.threads) as pool:
        large = batching.batch_size * PACKED_LENGTHS[0][0] >= ROOM  # otherwise short rows do not fill the room
        packs = unpadded is not None and batching.on_cpu and large and FEW < len(sentences) < MANY
        for batch in (cheapest_batches if packs else make_batches)(sentences, batching):
            # Later sentences are tokenized while this batch runs. There are no collectives, which are unsafe then.
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
    lengths = FINE_LENGTHS if count >= many else few
    return [*(length for length in lengths if length < batching.max_length), batching.max_length]


def make_batches(sentences: Sequence[Text], batching: Batching) -> Iterator[SentenceBatch]:
    """Batches of similar length, the longest first, padded.

    Sentences that do not fill a batch wait for others of their length. At the end they share batches with shorter ones.
    """
    return _padded(_tokenized(sentences, batching), padded_lengths(len(sentences), batching), batching)


def _padded(parts: Iterable[list[Sentence]], lengths: Sequence[int], batching: Batching) -> Iterator[SentenceBatch]:
    count = 0

    by_length: dict[int, list[Sentence]] = {length: [] for length in lengths}
    for part in parts:
        count += len(part)
        for sentence in part:
            by_length[fitting(lengths, sentence)].append(sentence)
        for length in reversed(lengths):
            size, waiting = batching.size(length), by_length[length]
            while len(waiting) >= size:
                yield SentenceBatch(waiting[:size], padded_shape(size, length))
                del waiting[:size]
    rest = [sentence for waiting in by_length.values() for sentence in waiting]
    rest.sort(key=lambda sentence: -len(sentence.ids))
    few = 1 if batching.on_cpu and count == 1 else batching.round_up(FEW)
    while rest:
        length = fitting(lengths, rest[0])
        size = batching.size(length)
        if len(rest) <= few < size:
            size = few
        yield SentenceBatch(rest[:size], padded_shape(size, length))
        del rest[:size]


def cheapest_batches(sentences: Sequence[Text], batching: Batching) -> list[SentenceBatch]:
    """Batches of few sentences, padded or packed, whichever cost least together with the programs that they need."""
    tokenized = [sentence for part in _tokenized(sentences, batching) for sentence in part]
    tokenized.sort(key=lambda sentence: -len(sentence.ids))
    plans = [list(_padded([tokenized], padded_lengths(len(tokenized), batching), batching))]
    plans += [_packed(tokenized, lengths, batching) for lengths in PACKED_LENGTHS]

    def cost(batches: list[SentenceBatch]) -> int:
        return sum(batch.shape.tokens for batch in batches) + PROGRAM * len({batch.shape for batch in batches})

    return min(plans, key=cost)


def _packed(sentences: list[Sentence], lengths: Sequence[int], batching: Batching) -> list[SentenceBatch]:
    """Batches without padding, the longest sentences first; short ones fill the room that these leave."""
    most = batching.max_length
    lengths = [*(length for length in (*lengths, ROOM) if length < most), most]
    batches, rest = [], sentences
    while rest:
        length = fitting(lengths, rest[0])
        if is_long(length):  # attention then is computed in blocks of padded rows
            shape = padded_shape(batching.size(length), length)
        else:
            shape = batching.shape_without_padding(length, ROOM)
        taken = shape.take([len(sentence.ids) for sentence in rest])
        batches.append(SentenceBatch([rest[place] for place in taken], shape))
        gone = {*taken}
        rest = [sentence for place, sentence in enumerate(rest) if place not in gone]
    return batches


def _tokenized(sentences: Sequence[Text], batching: Batching) -> Iterator[list[Sentence]]:
    """All sentences, roughly the longest first, some thousand at a time. The next ones are tokenized meanwhile."""
    sizes = [len(text) if isinstance(text, str) else len(text[0]) + len(text[1]) for text in sentences]
    order = np.argsort([-size for size in sizes], kind="stable")
    parts = [order[start : start + TOKENIZED_AT_ONCE] for start in range(0, len(order), TOKENIZED_AT_ONCE)]

    def tokenize(part: np.ndarray) -> list[Sentence]:
        tokens, cut = batching.tokenizer.tokenize([sentences[row] for row in part], batching.max_length)
        places = enumerate(zip(part, tokens, strict=True))
        return [Sentence(int(row), ids, cut.get(place, 0)) for place, (row, ids) in places]

    with _threads(1) as pool:
        following = [pool.submit(tokenize, part) for part in parts[:1]]
        for number in range(len(parts)):
            part = following.pop().result()
            following = [pool.submit(tokenize, part) for part in parts[number + 1 : number + 2]]
            yield part
