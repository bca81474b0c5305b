"""Encodes sentences, each distinct one once, and their tokens."""

import dataclasses
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simcse_jax.choices import DTYPES
from simcse_jax.devices import backend
from simcse_jax.devices.backend import keep_compilations
from simcse_jax.devices.mesh import ByRows, compile_by_rows
from simcse_jax.encoding.batching import Batching, compute
from simcse_jax.errors import UserError
from simcse_jax.host.progress import Progress
from simcse_jax.huggingface.load import ChosenPooler, Pretrained
from simcse_jax.huggingface.tokenizer import Text, Tokenizer
from simcse_jax.models import parameters
from simcse_jax.models.config import Cut, Module, Normalize, output_size
from simcse_jax.models.head import has_head
from simcse_jax.models.parameters import Arrays, Params
from simcse_jax.models.pooling import JOIN
from simcse_jax.models.sentence_encoder import Graph, build

IN_FLIGHT, LAYERS_IN_FLIGHT = 4, 1  # batches dispatched and not fetched, on each thread; all layers take hundreds of MB


class Encoded(NamedTuple):
    """Embeddings, and the number of sentences that were cut."""

    embeddings: np.ndarray  # (N, D) float32, in the order of the sentences
    cut: int  # how many of the N sentences were too long for the model


@dataclasses.dataclass(frozen=True, eq=False)
class Embedder:
    """A model that encodes, without dropout.

    `dataclasses.replace` changes pooler or length, `with_params` parameters; compiled programs are shared. `params` may
    be those of a whole run, and only the sentence encoder's are used. `SentenceEncoder` explains pooler and head,
    `Batching` the fields from tokenizer to sharding, `models.modules` what comes after pooler and head. With
    `normalize`, embeddings have length 1. `prompt` is put before every sentence; the pooler leaves its tokens out
    unless `include_prompt`. A sentence may be a pair of texts, whose tokens have types if the tokenizer is `typed`; a
    prompt is then put before the first one. `copies` are those of `params` that products read (`parameters.copies`):
    rounded once, not with every batch. `by_rows` compiles for devices that share the rows of a batch. With `last_only`,
    hidden states are the last layer's.
    """

    graph: Graph
    params: Arrays
    pooler: str
    use_head: bool
    tokenizer: Tokenizer
    max_length: int
    batch_size: int = 64
    sharding: NamedSharding | None = None
    normalize: bool = False
    prompt: str = ""
    include_prompt: bool = True
    modules: tuple[Module, ...] = ()
    copies: Arrays = dataclasses.field(default_factory=dict)
    by_rows: ByRows = compile_by_rows
    last_only: bool = False

    @property
    def arrays(self) -> Arrays:
        """The arrays that the program of `make_embed` reads."""
        return {**parameters.sentence_encoder(self.params), **self.copies}

    @property
    def dimension(self) -> int:
        """The number of elements of an embedding."""
        size = parameters.token_size(self.params)
        return output_size(self.modules, size * len(self.pooler.split(JOIN)))

    def truncated(self, size: int, *, normalized_first: bool) -> "Embedder":
        """Embeddings with their first `size` elements alone; of length 1 before the cut or, if at all, after it."""
        before = (Normalize(),) if normalized_first else ()
        modules = (*self.modules, *before, Cut(size))
        return dataclasses.replace(self, modules=modules, normalize=self.normalize and not before)

    def __call__(self, sentences: Iterable[Text]) -> np.ndarray:
        """(N, D) float32 embeddings of N sentences, in their order."""
        return self.encode(sentences).embeddings

    def encode(self, sentences: Iterable[Text], advance: Callable[[int], object] | None = None) -> Encoded:
        """Like a call; also counts the sentences that are cut.

        `advance`: called with the number of sentences done since the last call, after each batch.
        """
        numbers: dict[Text, int] = {}
        inverse = np.fromiter((numbers.setdefault(sentence, len(numbers)) for sentence in sentences), np.int64)
        occurrences = np.bincount(inverse, minlength=len(numbers))
        program = self.programs
        embeddings = np.empty((len(numbers), self.dimension), np.float32)
        cut = np.zeros(len(numbers), bool)
        unique = list(numbers)
        for output in compute(program(None), self.arrays, self.prompted(unique), self.batching, IN_FLIGHT, program):
            check_finite(output.values, [unique[row] for row in output.rows])
            embeddings[output.rows], cut[output.rows] = output.values, output.cut
            if advance:
                advance(int(occurrences[output.rows].sum()))
        embeddings = to_unit(embeddings) if self.normalize else embeddings
        in_order = embeddings[inverse] if len(numbers) < len(inverse) else embeddings
        return Encoded(in_order, int(cut[inverse].sum()))

    @property
    def skipped(self) -> int:
        """The tokens of the prompt that the pooler leaves out."""
        return 0 if self.include_prompt else self.tokenizer.count_prompt(self.prompt, self.max_length)

    @property
    def programs(self) -> Callable[[int | None], jax.stages.Wrapped]:
        """The compiled function for batches of at most so many tokens, without computing padding; None: with it."""
        fields = (self.graph, self.pooler, self.use_head, self.sharding, self.modules)
        more = (self.skipped, self.tokenizer.typed, self.by_rows)
        # A cache of its own: that of `make_embed` hashes the whole graph, and a program is asked for with every batch.
        return functools.cache(lambda most_tokens: make_embed(*fields, *more, most_tokens=most_tokens))

    def prompted(self, sentences: Sequence[Text]) -> Sequence[Text]:
        """The sentences with the prompt before each; before the first text of a pair."""
        if not self.prompt:
            return sentences
        return [self.prompt + text if isinstance(text, str) else (self.prompt + text[0], text[1]) for text in sentences]

    def with_progress(self, sentences: Sequence[str], shown: bool = True) -> np.ndarray:
        """Like a call, with a bar or lines on standard error (`simcse_jax.host.progress`) if `shown`."""
        with Progress(len(sentences), shown=shown) as bar:
            return self.encode(sentences, bar.advance).embeddings

    @property
    def batching(self) -> Batching:
        """How sentences are put into batches."""
        return Batching(self.tokenizer, self.max_length, self.batch_size, self.sharding)

    def tokenize(self, sentences: Sequence[str]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """Each sentence's token ids and their words' numbers (`Tokenizer.words`), (T,) each; how many were cut."""
        ids, cut = self.tokenizer.tokenize(sentences, self.max_length)
        return list(zip(ids, self.tokenizer.words(sentences, self.max_length), strict=True)), len(cut)

    def token(self, number: int) -> str:
        """The text of a token id."""
        return self.tokenizer.token(number)

    def hidden_states(self, sentences: Sequence[str]) -> Iterator[tuple[int, np.ndarray]]:
        """The hidden states of all layers, without prompt, pooler and head. A few batches are in memory at a time.

        Yields:
          The sentence's row, long sentences first, and (L + 1, ≥ T, D) float32: the embedding layer's states, then each
          layer's (with `last_only`, only the last one's). Padding may follow the T tokens.
        """
        function = make_hidden_states(self.graph, self.sharding, self.last_only, self.by_rows)
        for output in compute(function, self.arrays, list(sentences), self.batching, LAYERS_IN_FLIGHT):
            yield from zip(output.rows.tolist(), output.values, strict=True)

    def with_params(self, params: Arrays) -> "Embedder":
        """The same model with other parameters."""
        return dataclasses.replace(self, params=params, copies={})


def on_local_devices(model: Pretrained, tokenizer: Tokenizer, chosen: ChosenPooler, dtype: str) -> Embedder:
    """A model on all devices of this process, which share a batch; without prompt, truncation and unit length.

    Args:
      chosen: the pooler, and whether the head follows it.
      dtype: the type to compute in, float32 or bfloat16.
    """
    backend.start()
    keep_compilations()  # also for a model that was unpickled in another process
    devices = jax.local_devices()
    mesh, several = Mesh(np.array(devices), ("data",)), len(devices) > 1
    place = NamedSharding(mesh, PartitionSpec()) if several else devices[0]
    params = jax.device_put(model.params, place)
    config = dataclasses.replace(model.config, mask_token_id=tokenizer.mask_token_id)
    return Embedder(
        graph=build(config, has_head(model.params), jnp.dtype(dtype))[0],
        params=params,
        pooler=chosen.pooler,
        use_head=chosen.use_head,
        tokenizer=tokenizer,
        max_length=model.max_length,
        sharding=NamedSharding(mesh, PartitionSpec("data")) if several else None,
        include_prompt=model.include_prompt,
        modules=model.config.modules,
        copies=parameters.copies(parameters.sentence_encoder(params), jnp.dtype(dtype)),
    )


class LazyWeights:
    """A model's weights, which move to the devices when they are first used.

    JAX starts no thread before, so a process that has only loaded a model may be forked.
    """

    def __init__(self, model: Pretrained, tokenizer: Tokenizer, chosen: ChosenPooler, dtype: str):
        if dtype not in DTYPES:
            raise UserError(f"dtype {dtype!r:.60} is not one of {', '.join(DTYPES)}")
        self.model, self.tokenizer = model, tokenizer
        self._chosen, self._dtype = chosen, dtype
        self._embedder: Embedder | None = None
        self._placing = threading.Lock()

    @property
    def embedder(self) -> Embedder:
        """The model on all local devices."""
        with self._placing:
            if self._embedder is None:
                self._embedder = on_local_devices(self.model, self.tokenizer, self._chosen, self._dtype)
                self.model = dataclasses.replace(self.model, params=self._embedder.params)  # no second copy
            return self._embedder


def warn_of_cut(cut: int, max_length: int, stacklevel: int) -> None:
    """Warns of sentences that were cut, if there are any; `stacklevel` as for `warnings.warn`."""
    if cut:
        count = "1 sentence was" if cut == 1 else f"{cut} sentences were"
        warnings.warn(f"{count} longer than {max_length} tokens and cut there", UserWarning, stacklevel)


class NotFinite(UserError):
    """An embedding has a NaN or infinite element, or one too large for a length in float32."""


def check_finite(embeddings: np.ndarray, sentences: Sequence[Text]) -> None:
    """Checks embeddings (N, D) of N sentences.

    Raises:
      NotFinite: naming the first sentence whose embedding is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bad = np.flatnonzero(~np.isfinite(np.linalg.norm(embeddings, axis=1)))
    if bad.size:
        raise NotFinite(
            f"the model's embeddings are not finite, that of {sentences[bad[0]]!r:.60} among them; "
            "its weights are damaged, or too large for this type"
        )


def to_unit(embeddings: np.ndarray) -> np.ndarray:
    """(…, D) to the same directions with length 1."""
    lengths = np.linalg.norm(embeddings, axis=-1, keepdims=True)
    return embeddings / np.maximum(lengths, 1e-12)  # as sentence-transformers does


@functools.lru_cache(maxsize=16)  # many encoders of one shape, as in a sweep, compile once
def make_embed(
    graph: Graph,
    pooler: str,
    use_head: bool,
    sharding: NamedSharding | None,
    modules: tuple[Module, ...] = (),
    skipped: int = 0,
    typed: bool = False,
    by_rows: ByRows = compile_by_rows,
    *,
    most_tokens: int | None = None,
) -> jax.stages.Wrapped:
    """The compiled function of an `Embedder` with these fields: of parameters, token ids and mask, both (B, T).

    With `most_tokens` nothing is computed for padding, and all B sentences together have at most so many tokens. With
    `typed` the mask has each token's type + 1 (`Tokenizer.pad`).
    """

    def embed(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            encoder = parameters.merge(graph, parameters.sentence_encoder(params))
            how: dict[str, Any] = {
                "pooler": pooler,
                "use_head": use_head,
                "modules": modules,
                "skipped": skipped,
                "most_tokens": most_tokens,
            }
            if typed:
                how["token_types"] = jnp.maximum(attention_mask - 1, 0)
                attention_mask = jnp.minimum(attention_mask, 1)
            return encoder(input_ids, attention_mask, **how)

    return by_rows(embed, sharding)


@functools.lru_cache(maxsize=16)
def make_hidden_states(
    graph: Graph, sharding: NamedSharding | None, last_only: bool, by_rows: ByRows
) -> jax.stages.Wrapped:
    """The compiled function of `Embedder.hidden_states`: of parameters, token ids and mask, both (B, T)."""

    def hidden_states(params: Params, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            states = parameters.merge(graph, params).encoder(input_ids, attention_mask)
        return jnp.stack(states[-1:] if last_only else states, axis=1).astype(jnp.float32)

    return by_rows(hidden_states, sharding)
