"""Sentences to the token embeddings of every layer, without pooler and head, for `simcse_jax.evaluation.analysis`."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from simcse_jax.devices.mesh import ByRows, compile_by_rows
from simcse_jax.encoding.batching import Batching, compute
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models import parameters
from simcse_jax.models.parameters import Arrays, Params
from simcse_jax.models.sentence_encoder import Graph

IN_FLIGHT = 1  # batches: all layers of one are some hundred MB


@dataclasses.dataclass(frozen=True, eq=False)
class TokenEncoder:
    """An encoder's token embeddings. `dataclasses.replace` changes the parameters without compiling again.

    `params` may be those of a whole run, and only the sentence encoder's are used. `last_only` leaves out all layers
    but the last one, so that less is fetched. `by_rows` compiles. `Batching` explains the other fields.
    """

    graph: Graph
    params: Arrays
    tokenizer: Tokenizer
    max_length: int
    batch_size: int = 64
    sharding: NamedSharding | None = None
    last_only: bool = False
    by_rows: ByRows = compile_by_rows

    def tokenize(self, sentences: Sequence[str]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """Each sentence's token ids and their words' numbers (`Tokenizer.words`), (T,) each; how many were cut."""
        ids, cut = self.tokenizer.tokenize(sentences, self.max_length)
        return list(zip(ids, self.tokenizer.words(sentences, self.max_length), strict=True)), len(cut)

    def token(self, number: int) -> str:
        """The text of a token id."""
        return self.tokenizer.token(number)

    def hidden_states(self, sentences: Sequence[str]) -> Iterator[tuple[int, np.ndarray]]:
        """The hidden states of all layers, sentence by sentence. A few batches are in memory at a time.

        Yields:
          The sentence's row, long sentences first, and (L + 1, ≥ T, D) float32: the embedding layer's states, then each
          layer's (with `last_only`, only the last one's). Padding may follow the T tokens.
        """
        function = _make_hidden_states(self.graph, self.sharding, self.last_only, self.by_rows)
        batching = Batching(self.tokenizer, self.max_length, self.batch_size, self.sharding)
        params = parameters.sentence_encoder(self.params)
        for output in compute(function, params, list(sentences), batching, IN_FLIGHT):
            yield from zip(output.rows.tolist(), output.values, strict=True)


@functools.lru_cache(maxsize=16)
def _make_hidden_states(
    graph: Graph, sharding: NamedSharding | None, last_only: bool, by_rows: ByRows
) -> Callable[..., jax.Array]:
    def hidden_states(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            states = parameters.merge(graph, params).encoder(input_ids, attention_mask)
        return jnp.stack(states[-1:] if last_only else states, axis=1).astype(jnp.float32)

    return by_rows(hidden_states, sharding)
