"""The computations of a server, without HTTP: embeddings, the nearest sentences of an index, scores of documents."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.index.index import ROUNDING, Result
from simcse_jax.serving.batcher import Batcher, Done, Piece, PieceBatch
from simcse_jax.serving.replies import Refused

CHARACTERS_PER_TOKEN = 32  # a text with more for each token that the model reads is refused without tokenizing it
TOKENIZED_AT_ONCE = 32  # texts of a request; then it is other requests' turn, or it is over meanwhile
QUERIES = 16  # searched together at most
LEAST_TOP_K = 8  # the numbers of results that are searched for are powers of two from here on


ServedEncoder = Any  # `simcse_jax.encoding.batch_encoder.BatchEncoder`, or what has its attributes and methods


class Ranked(NamedTuple):
    """A request's documents, best first."""

    places: list[int]  # in the request
    scores: list[float]
    tokens: int


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a server. Times are in seconds."""

    inputs: int = 2048  # texts in a request, as in OpenAI's API
    waiting: int = 8192  # texts, of all requests
    requests: int = 1024  # being read or answered at the same time
    body: int = 16 * 2**20  # bytes
    seconds: float = 30.0  # for a request, from its first byte to its answer
    top_k: int = 1000
    results: int = 100_000  # of a request: its queries times top_k
    cut: bool = False  # whether texts that are too long are cut, in place of being refused

    @property
    def bodies(self) -> int:
        """The bytes of all requests together, enough for a few of the largest."""
        return 16 * self.body


class Service:
    """A model, and perhaps an index, for many requests at a time."""

    def __init__(
        self,
        name: str,
        encoders: Mapping[str | None, ServedEncoder],
        limits: Limits,
        *,
        search: Callable[[np.ndarray, int], list[list[Result]]] | None = None,
        query_prompt: str | None = None,
        reranker: tuple[str, ServedEncoder] | None = None,
        observe: Callable[[str, Done], object] = lambda kind, done: None,
    ):
        """Takes requests after `start`.

        Args:
          encoders: by the name of a prompt; None is what is used without one.
          search: the nearest sentences of an index to queries (Q, D), at most so many for each.
          query_prompt: the prompt of queries.
          reranker: a cross-encoder with a score for each pair of texts, and its name.
          observe: called after each batch, with what it was of: "texts" or "pairs".
        """
        self.name, self.limits = name, limits
        self.dimension = encoders[None].dimension
        self._encoders, self._search, self._query_prompt = encoders, search, query_prompt
        self._by_group = {encoder.skipped: encoder for encoder in encoders.values()}
        self._closed = threading.Event()
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
        self._batcher = self._batcher_of(encoders[None], self._by_group, partial(observe, "texts"))
        self.reranker_name: str | None = None
        self._reranker: ServedEncoder | None = None
        self._pairs: Batcher | None = None
        if reranker is not None:
            self.reranker_name, judge = reranker
            self._reranker = judge
            self._pairs = self._batcher_of(judge, {judge.skipped: judge}, partial(observe, "pairs"))
        self._searches = Batcher(
            self._run_search,
            lambda _, sizes: (len(sizes), range(len(sizes))),
            most=QUERIES,
            workers=1,
            most_waiting=limits.waiting,
        )

    def _batcher_of(
        self, first: ServedEncoder, by_group: Mapping[int, ServedEncoder], observe: Callable[[Done], object]
    ) -> Batcher:
        """Batches for encoders that differ in their group alone."""
        return Batcher(
            lambda batch: by_group[batch.group].encode(batch.payloads, batch.shape),
            first.choose,
            most=first.most,
            workers=first.workers,
            most_waiting=self.limits.waiting,
            observe=observe,
        )

    @property
    def _batchers(self) -> list[Batcher]:
        return [self._batcher, self._searches, *([self._pairs] if self._pairs else [])]

    @property
    def waiting(self) -> int:
        """The texts and queries that wait for a batch."""
        return sum(batcher.waiting for batcher in self._batchers)

    @property
    def failure(self) -> BaseException | None:
        """The error that ended a worker, so that requests do not wait in vain."""
        return next((batcher.failure for batcher in self._batchers if batcher.failure), None)

    def warm(self) -> None:
        """Compiles every program of the encoders, and the usual ones of a search; until `close`, in any thread.

        It takes seconds to minutes.
        """
        for encoder in [*self._by_group.values(), *([self._reranker] if self._reranker else [])]:
            for shape in encoder.shapes():
                if self._closed.is_set():
                    return
                encoder.warm(shape)
        if self._search is not None:
            for size in (1, QUERIES):
                self._search(np.ones((size, self._encoders[self._query_prompt].dimension), np.float32), LEAST_TOP_K)

    def start(self) -> None:
        """Starts to work, in a running event loop."""
        for batcher in self._batchers:
            batcher.start()

    async def close(self) -> None:
        """Ends the work."""
        self._closed.set()
        for batcher in self._batchers:
            await batcher.close()
        self._tokenizing.shutdown()

    async def embed(
        self, texts: Sequence[str], prompt_name: str | None = None, param: str = "input"
    ) -> tuple[np.ndarray, int]:
        """The embeddings (N, D) of texts, each distinct one encoded once, and the tokens that were read.

        Args:
          prompt_name: one of the model's prompts; None is the one that it uses by default.
          param: the field that the texts come from, for errors.

        Raises:
          Refused: naming the text that is too long, or the prompt that the model has not; or too many texts wait.
        """
        if prompt_name not in self._encoders:
            names = ", ".join(name for name in self._encoders if name is not None) or "none"
            raise Refused(400, f"the model has no prompt {prompt_name!r:.60}; its prompts: {names}", "prompt_name")
        self._check_count(texts, param)
        return await self._run(texts, self._encoders[prompt_name], self._batcher, param)

    async def rerank(
        self, query: str, documents: Sequence[str], top_n: int | None = None, max_tokens_per_doc: int | None = None
    ) -> Ranked:
        """The documents by their scores with the query, best first; equal ones in the order of the request.

        Args:
          top_n: at most so many; None for all.
          max_tokens_per_doc: documents are cut after so many tokens, special ones not counted; None: not at all.

        Raises:
          Refused: when there is no cross-encoder, or as for `embed`.
        """
        if self._reranker is None or self._pairs is None:
            raise Refused(404, "there is no cross-encoder; the server has no --rerank", code="no_reranker")
        self._check_count(documents, "documents")
        first_tokens, most = self._reranker.first_tokens, max_tokens_per_doc
        if most is not None and most < self._reranker.max_length:
            documents = await self._in_turns(documents, lambda some: first_tokens(some, most))
        pairs = [(query, document) for document in documents]
        scores, tokens = await self._run(pairs, self._reranker, self._pairs, "documents")
        places = np.argsort(-scores[:, 0], kind="stable")[:top_n]
        return Ranked(places.tolist(), scores[places, 0].tolist(), tokens)

    def _check_count(self, texts: Sequence[str], param: str) -> None:
        if not 1 <= len(texts) <= self.limits.inputs:
            raise Refused(400, f"{len(texts)} texts; a request has from 1 to {self.limits.inputs}", param)

    async def _run(
        self, texts: Sequence[str | tuple[str, str]], encoder: ServedEncoder, batcher: Batcher, param: str
    ) -> tuple[np.ndarray, int]:
        """The results of an encoder for texts or pairs, each distinct one encoded once; the tokens that it read."""
        most = encoder.max_length * CHARACTERS_PER_TOKEN
        for number, text in enumerate(() if self.limits.cut else texts):
            if (size := max(map(len, [text] if isinstance(text, str) else text))) > most:
                raise _too_long(f"{size:,} characters", encoder, param, number)
        numbers: dict[str | tuple[str, str], int] = {}
        rows = [numbers.setdefault(text, len(numbers)) for text in texts]
        sentences = await self._tokenize([*numbers], encoder)
        if (last := sentences[-1]).cut and not self.limits.cut:
            size = len(last.ids) + last.cut
            together = "" if isinstance(texts[0], str) else " together with the query"
            raise _too_long(f"{size:,} tokens{together}", encoder, param, rows.index(len(sentences) - 1))
        pieces = [Piece(text, encoder.row_length(text), len(text.ids), encoder.skipped) for text in sentences]
        values = np.stack(await batcher.submit(pieces))
        if not np.isfinite(values).all():
            raise FloatingPointError("a result is not finite; the model's weights are damaged")
        return values[rows], sum(len(sentences[row].ids) for row in rows)

    async def _tokenize(self, texts: Sequence[Any], encoder: ServedEncoder) -> list[Any]:
        """The tokens of texts, up to and with the first one that is too long and is not to be cut."""
        stops = (lambda sentence: False) if self.limits.cut else (lambda sentence: bool(sentence.cut))
        return await self._in_turns(texts, encoder.tokenize, stops)

    async def _in_turns(
        self,
        texts: Sequence[Any],
        work: Callable[[Sequence[Any]], Sequence[Any]],
        stops: Callable[[Any], bool] = lambda result: False,
    ) -> list[Any]:
        """The results of tokenizing texts, a few at a time, up to and with the first one that stops it."""
        loop, results = asyncio.get_running_loop(), list[Any]()
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            some = texts[start : start + TOKENIZED_AT_ONCE]
            for result in await loop.run_in_executor(self._tokenizing, work, some):
                results.append(result)
                if stops(result):
                    return results
        return results

    async def search(
        self, queries: Sequence[str], top_k: int, threshold: float | None
    ) -> tuple[list[list[Result]], int]:
        """The sentences of the index that are nearest to each query, best first, and the tokens that were read.

        Args:
          threshold: the smallest score of a result, to within 1e-6; None for any.

        Raises:
          Refused: when there is no index, too many results are asked for, or as for `embed`.
        """
        if self._search is None:
            raise Refused(404, "there is no index to search in; the server has no --index", code="no_index")
        if top_k > self.limits.top_k:
            raise Refused(400, f"top_k: must be from 1 to {self.limits.top_k}", "top_k")
        if len(queries) * top_k > self.limits.results:
            asked = f"{len(queries)} queries times {top_k} results"
            raise Refused(400, f"top_k: {asked}; a request has at most {self.limits.results}", "top_k")
        vectors, tokens = await self.embed(queries, self._query_prompt, "query")
        searched = max(1 << (top_k - 1).bit_length(), LEAST_TOP_K)
        rows = await self._searches.submit([Piece(vector, group=searched) for vector in vectors])
        least = -np.inf if threshold is None else threshold - ROUNDING
        return [[result for result in row[:top_k] if result.score >= least] for row in rows], tokens

    def _run_search(self, batch: PieceBatch) -> list[list[Result]]:
        assert self._search is not None
        return self._search(np.stack(batch.payloads), batch.group)


def _too_long(size: str, encoder: ServedEncoder, param: str, number: int) -> Refused:
    cure = "shorten it, or start the server with --truncate, which cuts such texts"
    message = f"{param}[{number}] has {size}; this model reads at most {encoder.max_length} tokens; {cure}"
    return Refused(400, message, param, "context_length_exceeded")
