"""The endpoints of the server: embeddings as in OpenAI's API, search, reranking, health and metrics."""

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response

from simcse_jax.host.version import __version__
from simcse_jax.serving import schemas
from simcse_jax.serving.prometheus import Metrics
from simcse_jax.serving.replies import Later, Refused, refusal_of
from simcse_jax.serving.service import Service

ABOUT = "Sentence embeddings as in OpenAI's API, search in an index of sentences, and reorder."
ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": schemas.ErrorBody}, "5XX": {"model": schemas.ErrorBody}}
ANSWERED = (RequestValidationError, HTTPException, Refused, Exception)  # by `_answer`
WARMING = 5  # seconds after which to ask again


class App:
    """A FastAPI application (`asgi`) for a service."""

    def __init__(
        self, service: Service, metrics: Metrics, on_ready: Callable[[], object] = lambda: None, address: str = ""
    ):
        """`service` is started with the application, and is warm before requests are answered.

        `on_ready` is called when they are. `address` is the server's, for the page of /docs.
        """
        self._service, self._metrics, self._on_ready = service, metrics, on_ready
        self._created, self.ready = int(time.time()), False
        self._not_compiled: Exception | None = None
        metrics.watch(lambda: self.ready, lambda: service.waiting)
        self.asgi = FastAPI(
            title="simcse_jax",
            version=__version__,
            description=f'{ABOUT} For a client of OpenAI: `base_url="{address}/v1"`.' if address else ABOUT,
            redoc_url=None,
            swagger_ui_oauth2_redirect_url=None,
            redirect_slashes=False,
            lifespan=self._life,
            exception_handlers=dict.fromkeys(ANSWERED, _answer),
        )
        self._add_paths(self.asgi)
        self.paths = frozenset(self.asgi.openapi()["paths"]) - {"/v1/models/{name}"} | {"/docs", "/openapi.json"}

    @property
    def failure(self) -> BaseException | None:
        """Why it will never be ready, or cannot continue."""
        return self._not_compiled or self._service.failure

    @contextlib.asynccontextmanager
    async def _life(self, app: FastAPI) -> AsyncIterator[None]:
        self._service.start()
        warming = asyncio.create_task(self._warm())
        yield
        warming.cancel()
        await self._service.close()

    async def _warm(self) -> None:
        try:
            await asyncio.to_thread(self._service.warm)
        except Exception as error:
            self._not_compiled = error
        else:
            self.ready = True
            with contextlib.suppress(OSError):  # standard output may be closed
                self._on_ready()

    def _add_paths(self, app: FastAPI) -> None:
        secured: dict[str, Any] = {
            "dependencies": [Security(HTTPBearer(auto_error=False))],
            "tags": ["v1"],
            "responses": ERRORS,
        }
        app.post("/v1/embeddings", response_model=schemas.Embeddings, **secured)(self.embeddings)
        app.post("/v1/search", response_model=schemas.Searches, **secured)(self.search)
        app.post("/v1/rerank", response_model=schemas.Reranked, **secured)(self.rerank)
        app.get("/v1/models", response_model=schemas.Models, **secured)(self.models)
        app.get("/v1/models/{name:path}", response_model=schemas.Model, **secured)(self.model)
        app.get("/health", response_model=schemas.State, tags=["state"])(self.health)
        app.get("/ready", response_model=schemas.State, tags=["state"], responses=ERRORS)(self.readiness)
        app.get("/metrics", response_class=Response, tags=["state"])(self.figures)
        app.head("/health", include_in_schema=False)(self.health)  # as load balancers ask
        app.head("/ready", response_model=None, include_in_schema=False)(self.readiness)

    async def embeddings(self, request: schemas.EmbeddingsRequest) -> Response:
        """The embeddings of a text or of several, in their order."""
        self._check(request.model)
        size, most = request.dimensions, self._service.dimension
        if size is not None and not 1 <= size <= most:
            raise Refused(400, f"dimensions {str(size)[:40]}: must be from 1 to {most}, the model's own", "dimensions")
        embeddings, tokens = await self._service.embed(request.input, request.prompt_name)
        rows: Any = embeddings if size is None else shortened(embeddings, size)
        if request.encoding_format == "base64":
            rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        return self._list(data, tokens)

    async def search(self, request: schemas.SearchRequest) -> Response:
        """The sentences of the index that are nearest to a query, or to each of several, best first."""
        self._check(request.model)
        found, tokens = await self._service.search(request.query, request.top_k, request.threshold)
        data = [
            {"object": "search_results", "index": index, "results": [result._asdict() for result in results]}
            for index, results in enumerate(found)
        ]
        return self._list(data, tokens)

    async def rerank(self, request: schemas.RerankRequest) -> Response:
        """Documents by the cross-encoder's score of query and document together, best first."""
        name = self._service.reranker_name
        self._check(request.model, name)
        order = await self._service.rerank(request.query, request.documents, request.top_n, request.max_tokens_per_doc)
        results: list[dict[str, Any]] = [
            {"index": place, "relevance_score": score}
            | ({"document": {"text": request.documents[place]}} if request.return_documents else {})
            for place, score in zip(order.places, order.scores, strict=True)
        ]
        return _json({"model": name, "results": results, "usage": _usage(order.tokens)})

    async def models(self) -> schemas.Models:
        """The model that is served, and the cross-encoder if there is one."""
        return schemas.Models(data=[self._about(name) for name in self._names])

    async def model(self, name: str) -> schemas.Model:
        """The model of this name."""
        _check_name(name, self._names)
        return self._about(name)

    @property
    def _names(self) -> list[str]:
        return [name for name in (self._service.name, self._service.reranker_name) if name is not None]

    async def health(self) -> schemas.State:
        """Whether the server lives, also while it compiles."""
        return schemas.State(status="ok", ready=self.ready)

    async def readiness(self) -> schemas.State:
        """Whether all programs are compiled, so that requests are answered."""
        self._check(None)
        return schemas.State(status="ok", ready=True)

    async def figures(self) -> Response:
        """Figures for Prometheus."""
        return Response(self._metrics.text(), media_type=self._metrics.content_type)

    def _about(self, name: str) -> schemas.Model:
        return schemas.Model(id=name, created=self._created)

    def _check(self, asked: str | None, name: str | None = None) -> None:
        """Refuses what is asked of a model of another name, and before all programs are compiled."""
        if asked is not None:
            _check_name(asked, [name or self._service.name])
        if not self.ready:
            raise Later(503, "the server is not ready: it compiles its programs", WARMING, "not_ready")

    def _list(self, data: list[dict[str, Any]], tokens: int) -> Response:
        return _json({"object": "list", "data": data, "model": self._service.name, "usage": _usage(tokens)})


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def shortened(embeddings: np.ndarray, size: int) -> np.ndarray:
    """(N, D) to (N, size) of length 1, as OpenAI's `dimensions` does."""
    kept = embeddings[:, :size]
    return np.ascontiguousarray(kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12))


def _check_name(asked: str, names: Sequence[str]) -> None:
    if asked not in names:
        listed = " and ".join(map(repr, names))
        raise Refused(404, f"there is no model {asked!r:.100}; this server has {listed}", "model", "model_not_found")


async def _answer(request: Request, error: Exception) -> Response:
    return refusal_of(error, request.url.path).response()
