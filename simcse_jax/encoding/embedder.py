"""Sentences to embeddings: sorted by length into a few static shapes, duplicates encoded once.

A thread tokenizes some thousand sentences while the devices work on those before them, so what is held beside the
sentences and the result does not grow with their number. On a CPU several threads compute a batch each.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from tqdm import tqdm

from simcse_jax.encoding.batching import compute
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models import parameters
from simcse_jax.models.parameters import Params

IN_FLIGHT = 4  # batches that are dispatched and not fetched, on each thread


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


@functools.lru_cache(maxsize=16)  # so that many encoders of one shape, as in a sweep, compile once
def _make_embed(graph: Any, pooler: str, use_head: bool, sharding: NamedSharding | None) -> Callable[..., jax.Array]:
    @functools.partial(jax.jit, out_shardings=sharding)
    def embed(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            return parameters.merge(graph, params)(input_ids, attention_mask, pooler=pooler, use_head=use_head)

    return embed
