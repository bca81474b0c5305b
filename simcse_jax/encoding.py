"""Sentences to embeddings: sorted by length into a few static shapes, duplicates encoded once.

A thread tokenizes some thousand sentences while the devices work on those before them, so what is held beside the
sentences and the result does not grow with their number. On a CPU several threads compute a batch each.
"""

import collections
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from tqdm import tqdm

from simcse_jax import parallel
from simcse_jax.models import parameters
from simcse_jax.models.parameters import Params
from simcse_jax.models.tokenizer import Tokenizer

# A batch is padded to the next of these, so each compiles once: of few sentences, to few lengths.
LENGTHS = (16, 24, 32, 48, 64, 128, 256, 512)
FINE_LENGTHS = (*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 513, 64))
MANY = 2048  # distinct sentences: as many are worth the fine lengths' compilations
FULL_BATCH_LENGTH = 64  # up to it a batch has `batch_size` sentences; of longer ones it has fewer, not more tokens
CPU_TOKENS = 1024  # of a batch at most: its activations then stay in a core's cache
FEW = 8  # sentences: what is left over, if it is no more than these, is not worth a whole batch
TOKENIZED_AT_ONCE = 4096  # sentences
IN_FLIGHT = 4  # batches that are dispatched and not fetched, on each thread
MOST_THREADS = 8  # that compute on a CPU, each of whose programs takes several cores already


class Encoded(NamedTuple):
    """What encoding gives."""

    embeddings: np.ndarray  # (N, D) float32, in the order of the sentences
    cut: int  # how many of the N sentences were longer than the model takes, and were cut


def make_encode(
    graph: Any,
    tokenizer: Tokenizer,
    *,
    pooler: str,
    use_head: bool,
    max_length: int,
    batch_size: int = 64,
    sharding: NamedSharding | None = None,
) -> Callable[[Params, Sequence[str]], np.ndarray]:
    """Builds encode(params, sentences) -> (N, D) float32 embeddings, not normalized, in the order given.

    Of a run's parameters it takes the sentence encoder's alone. For the arguments see `encode_sentences`.
    """

    def encode(params: Params, sentences: Sequence[str]) -> np.ndarray:
        return encode_sentences(
            graph,
            params,
            tokenizer,
            sentences,
            pooler=pooler,
            use_head=use_head,
            max_length=max_length,
            batch_size=batch_size,
            sharding=sharding,
        ).embeddings

    return encode


def encode_sentences(
    graph: Any,
    params: Params,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    pooler: str,
    use_head: bool,
    max_length: int,
    batch_size: int = 64,
    sharding: NamedSharding | None = None,
    show_progress_bar: bool = False,
) -> Encoded:
    """Encodes N sentences, each distinct one once.

    Args:
      graph: the model's graph (`models.parameters`).
      params: its parameters; of a run's, the sentence encoder's are taken alone.
      tokenizer: the model's.
      sentences: strings.
      pooler, use_head: see `SentenceEncoder.__call__`; dropout is off.
      max_length: longer sentences are cut, in tokens.
      batch_size: sentences encoded together, up to 64 tokens; fewer of longer ones, and on a CPU, which has several
        batches under way at once, no more than make 1,024 tokens.
      sharding: how a batch's rows are split over the devices of all processes; None: the default device.
      show_progress_bar: counts the distinct sentences on standard error.
    """
    params = parameters.sentence_encoder(params)
    embed = _make_embed(graph, pooler, use_head, sharding)
    numbers: dict[str, int] = {}
    inverse = np.fromiter((numbers.setdefault(s, len(numbers)) for s in sentences), np.int64, len(sentences))
    distinct = list(numbers)
    embeddings = np.empty((len(distinct), params[parameters.WORD_EMBEDDING].shape[1]), np.float32)
    cut = np.zeros(len(distinct), bool)
    with tqdm(total=len(distinct), unit=" sentences", disable=not show_progress_bar) as bar:
        for rows, output in compute(
            embed,
            params,
            tokenizer,
            distinct,
            cut,
            max_length=max_length,
            batch_size=batch_size,
            sharding=sharding,
            in_flight=IN_FLIGHT,
        ):
            embeddings[rows] = output
            bar.update(len(rows))
    if len(distinct) < len(inverse):
        return Encoded(embeddings[inverse], int(cut[inverse].sum()))
    return Encoded(embeddings, int(cut.sum()))


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
            ids, mask = parallel.place(lambda part: (ids[part], mask[part]), size, sharding)
        with lock:  # or two threads would compile the same
            output = function(params, ids, mask)
        return jax.block_until_ready(output) if on_cpu else output

    def fetch() -> tuple[np.ndarray, np.ndarray]:
        rows, output = waiting.popleft()
        return rows, parallel.fetch(output.result())[: len(rows)]

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


@functools.lru_cache(maxsize=16)  # so that many encoders of one shape, as in a sweep, compile once
def _make_embed(graph: Any, pooler: str, use_head: bool, sharding: NamedSharding | None) -> Callable[..., jax.Array]:
    @functools.partial(jax.jit, out_shardings=sharding)
    def embed(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            return parameters.merge(graph, params)(input_ids, attention_mask, pooler=pooler, use_head=use_head)

    return embed
