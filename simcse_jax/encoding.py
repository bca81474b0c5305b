"""Sentences to embeddings: sorted by length into a few static shapes, duplicates encoded once."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from simcse_jax import parallel
from simcse_jax.models import parameters
from simcse_jax.models.parameters import Params
from simcse_jax.models.tokenizer import Tokenizer

LENGTHS = (16, 24, 32, 48, 64, 128, 256, 512)  # a batch is padded to the next of these, so each compiles once


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

    Of a run's parameters it takes the sentence encoder's alone.

    Args:
      graph: the model's graph (`models.parameters`).
      tokenizer: the model's.
      pooler, use_head: see `SentenceEncoder.__call__`; dropout is off.
      max_length: longer sentences are cut, in tokens.
      batch_size: sentences encoded together.
      sharding: how a batch's rows are split over the devices of all processes; None: the default device.
    """

    embed = _make_embed(graph, pooler, use_head, sharding)
    if sharding is not None:
        batch_size = -(-batch_size // sharding.num_devices) * sharding.num_devices

    def encode(params: Params, sentences: Sequence[str]) -> np.ndarray:
        params = parameters.sentence_encoder(params)
        position = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        tokens = tokenizer(list(position), max_length)
        by_length = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
        outputs = []
        for start in range(0, len(by_length), batch_size):
            rows = by_length[start : start + batch_size]
            longest = len(tokens[rows[0]])
            length = min(next((n for n in LENGTHS if n >= longest), max_length), max_length)
            # The last batch is filled up with its first row, so that it has the shape of the others.
            filled = [tokens[row] for row in rows + [rows[0]] * (batch_size - len(rows))]
            ids, mask = tokenizer.pad(filled, length)
            if sharding is not None:
                ids, mask = parallel.place(lambda part: (ids[part], mask[part]), batch_size, sharding)
            # Dispatched: the next batch is padded meanwhile. Without collectives, which would not be safe side by side.
            outputs.append((rows, embed(params, ids, mask)))
        embeddings = np.empty((len(position), outputs[0][1].shape[1] if outputs else 0), np.float32)
        for rows, output in outputs:
            embeddings[rows] = parallel.fetch(output)[: len(rows)]
        return embeddings[[position[sentence] for sentence in sentences]]

    return encode


@functools.lru_cache(maxsize=16)  # so that many encoders of one shape, as in a sweep, compile once
def _make_embed(graph: Any, pooler: str, use_head: bool, sharding: NamedSharding | None) -> Callable[..., jax.Array]:
    @functools.partial(jax.jit, out_shardings=sharding)
    def embed(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            return parameters.merge(graph, params)(input_ids, attention_mask, pooler=pooler, use_head=use_head)

    return embed
