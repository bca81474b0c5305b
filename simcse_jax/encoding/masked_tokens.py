"""How many masked tokens a language-model head predicts correctly."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Int, Key, UInt32

from simcse_jax.devices.mesh import compile_by_rows
from simcse_jax.encoding.batching import compute
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.models import parameters
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.language_model import logits
from simcse_jax.models.masking import mask_tokens, select_positions
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph

IN_FLIGHT = 1  # batches: the scores of all words are some hundred MB
MULTIPLIER = 1_000_003  # of the hash; odd, so that no token's part vanishes modulo 2³²


def masked_token_accuracy(
    embedder: Embedder, sentences: Sequence[str], *, mask_id: int, special_ids: tuple[int, ...]
) -> float:
    """The percentage of masked tokens that the head of `embedder.params` predicts, without dropout.

    Tokens are hidden as in training (`models.masking.mask_tokens`: 15%, of which 80% become the mask token, 10% a
    random one, and 10% stay). A sentence's own tokens decide which of them, so the number depends on the sentences and
    the parameters alone.
    """
    function = _make_count(embedder.graph, embedder.sharding, mask_id, special_ids)
    total = np.zeros(2, np.int64)
    for output in compute(function, embedder.params, sentences, embedder.batching, IN_FLIGHT):
        total += output.values.sum(axis=0)
    return float(100 * total[0] / total[1]) if total[1] else float("nan")


def content_keys(input_ids: Int[AnyArray, "B T"], attention_mask: Int[AnyArray, "B T"]) -> Key[Array, " B"]:
    """A key for each sentence, which depends on its tokens and not on padding."""
    places = jnp.cumprod(jnp.full(input_ids.shape[1], MULTIPLIER, jnp.uint32))
    hashed: UInt32[Array, " B"] = jnp.sum(jnp.where(attention_mask > 0, input_ids, 0).astype(jnp.uint32) * places, 1)
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0, impl="threefry2x32"), hashed)


@functools.lru_cache(maxsize=4)
def _make_count(
    graph: Graph, sharding: NamedSharding | None, mask_id: int, special_ids: tuple[int, ...]
) -> Callable[..., jax.Array]:
    """A compiled function that counts, for each row, the tokens that are guessed and those that are masked: (B, 2)."""

    def count(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        table, keys = params[parameters.WORD_EMBEDDING], content_keys(input_ids, attention_mask)
        shown, selected = mask_tokens(
            keys, input_ids, attention_mask, special_ids=special_ids, mask_id=mask_id, vocab_size=len(table)
        )
        encoder = parameters.merge(graph, parameters.sentence_encoder(params)).encoder
        # As in training, at half of the positions: three times as many as are masked on average.
        positions, valid = select_positions(selected, -(-input_ids.shape[1] // 2))
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            hidden = encoder(shown, attention_mask)[-1]
            scores = logits(
                jnp.take_along_axis(hidden, positions[:, :, None], axis=1),
                parameters.subset(params, parameters.LANGUAGE_MODEL),
                table,
                encoder.config,
            )
        right = jnp.argmax(scores, axis=-1) == jnp.take_along_axis(input_ids, positions, axis=1)
        return jnp.stack([jnp.sum(right & valid, axis=1), jnp.sum(valid, axis=1)], axis=1)

    return compile_by_rows(count, sharding)
