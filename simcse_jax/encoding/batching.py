"""Batches of sentences of like length, and a compiled function run on them."""

import collections
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from simcse_jax.devices import mesh
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.parameters import Params

# A batch is padded to the next of these, so each compiles once: of few sentences, to few lengths.
LENGTHS = (16, 24, 32, 48, 64, 128, 256, 512)
FINE_LENGTHS = (*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 513, 64))
MANY = 2048  # distinct sentences: as many are worth the fine lengths' compilations
FULL_BATCH_LENGTH = 64  # up to it a batch has `batch_size` sentences; of longer ones it has fewer, not more tokens
CPU_TOKENS = 1024  # of a batch at most: its activations then stay in a core's cache
FEW = 8  # sentences: what is left over, if it is no more than these, is not worth a whole batch
TOKENIZED_AT_ONCE = 4096  # sentences
MOST_THREADS = 8  # that compute on a CPU, each of whose programs takes several cores already


def compute(
    function: Callable[..., jax.Array],
    params: Params,
    tokenizer: Tokenizer,
    sentences: list[str],
    cut: np.ndarray,
    *,
    max_length: int,
    batch_size: int,
    sharding: NamedSharding | None,
    in_flight: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Runs a compiled function on batches of sentences of like length.

    Args:
      function: takes the parameters, token ids and mask, both (B, T), and gives an array of B rows.
      params: what it takes.
      tokenizer, max_length, batch_size, sharding: see `encode_sentences`.
      sentences: N of them.
      cut: (N,) booleans; those of sentences that are cut are set.
      in_flight: batches that are dispatched and not fetched, at most, on each thread; what is held does not grow
        beyond them.

    Yields:
      Which sentences a batch has, and the function's rows of them.
    """
    devices = 1 if sharding is None else sharding.num_devices
    on_cpu = devices == 1 and jax.default_backend() == "cpu"
    # One program leaves a CPU's cores idle between its products, and those of one thread run one after the other.
    threads = min(os.cpu_count() or 1, MOST_THREADS) if on_cpu else 1
    most_tokens = batch_size * FULL_BATCH_LENGTH
    if on_cpu:
        most_tokens = min(most_tokens, CPU_TOKENS)
    # What comes back from other processes comes back by a collective, which must not run beside another one.
    most = threads * in_flight if sharding is None or sharding.is_fully_addressable else len(sentences)
    waiting: collections.deque[tuple[np.ndarray, Future[jax.Array]]] = collections.deque()
    compiling = collections.defaultdict(threading.Lock)

    def run(tokens: list[np.ndarray], length: int, size: int, lock: threading.Lock) -> jax.Array:
        # Filled up with its first row, so that it has the shape of others.
        ids, mask = tokenizer.pad(tokens + [tokens[0]] * (size - len(tokens)), length)
        if sharding is not None:
            ids, mask = mesh.place(lambda part: (ids[part], mask[part]), size, sharding)
        with lock:  # or two threads would compile the same
            output = function(params, ids, mask)
        return jax.block_until_ready(output) if on_cpu else output

    def fetch() -> tuple[np.ndarray, np.ndarray]:
        rows, output = waiting.popleft()
        return rows, mesh.fetch(output.result())[: len(rows)]

    with ThreadPoolExecutor(threads) as pool:
        for rows, tokens, length, size in _batches(
            sentences, tokenizer, max_length, batch_size, most_tokens, devices, cut
        ):
            # Dispatched: the next batch is tokenized meanwhile. Without collectives, which are not safe side by side.
            waiting.append((rows, pool.submit(run, tokens, length, size, compiling[length, size])))
            while len(waiting) > most:
                yield fetch()
        while waiting:
            yield fetch()


class _Batch(NamedTuple):
    rows: np.ndarray  # of the distinct sentences
    tokens: list[np.ndarray]
    length: int  # padded to
    size: int  # filled up to


def _batches(
    sentences: list[str],
    tokenizer: Tokenizer,
    max_length: int,
    batch_size: int,
    most_tokens: int,
    devices: int,
    cut: np.ndarray,
) -> Iterator[_Batch]:
    """Batches of like length, the longest first; marks in `cut` the sentences that are cut.

    What does not fill a batch of its length waits for the next sentences of that length, and at the end shares
    batches with shorter ones.
    """
    known = LENGTHS if len(sentences) < MANY else FINE_LENGTHS
    lengths = [n for n in known if n < max_length] + [max_length]
    order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
    parts = [order[start : start + TOKENIZED_AT_ONCE] for start in range(0, len(order), TOKENIZED_AT_ONCE)]

    def size_of(length: int) -> int:
        return _round_up(max(min(batch_size, most_tokens // length), 1), devices)

    def tokenize(part: np.ndarray) -> tuple[list[np.ndarray], list[int]]:
        return tokenizer.tokenize([sentences[row] for row in part], max_length)

    by_length: dict[int, list[tuple[int, np.ndarray]]] = {length: [] for length in lengths}
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(tokenize, parts[0]) if parts else None
        for number, part in enumerate(parts):
            tokens, too_long = following.result()
            if number + 1 < len(parts):
                following = pool.submit(tokenize, parts[number + 1])
            cut[part[too_long]] = True
            for row, ids in zip(part, tokens, strict=True):
                by_length[lengths[np.searchsorted(lengths, len(ids))]].append((row, ids))
            for length in reversed(lengths):
                size = size_of(length)
                while len(by_length[length]) >= size:
                    yield _batch(by_length[length][:size], length, size)
                    del by_length[length][:size]
    rest = sorted((pair for pairs in by_length.values() for pair in pairs), key=lambda pair: -len(pair[1]))
    while rest:
        length = lengths[np.searchsorted(lengths, len(rest[0][1]))]
        size = size_of(length)
        few = _round_up(FEW, devices)
        if len(rest) <= few < size:
            size = few
        yield _batch(rest[:size], length, size)
        del rest[:size]


def _batch(pairs: list[tuple[int, np.ndarray]], length: int, size: int) -> _Batch:
    return _Batch(np.array([row for row, _ in pairs]), [ids for _, ids in pairs], length, size)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
