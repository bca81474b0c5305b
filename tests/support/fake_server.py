"""A server's parts without a model: an encoder of lengths, and the application of it without a socket."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx
import numpy as np

from simcse_jax.serving.app import App
from simcse_jax.serving.guard import Guard
from simcse_jax.serving.prometheus import Metrics
from simcse_jax.serving.service import Limits, Service


class Sentence(NamedTuple):
    text: str
    ids: np.ndarray
    cut: int


class Shape(NamedTuple):
    rows: int
    length: int
    tokens: int


class FakeEncoder:
    """A token a character, at most 16; the embedding is drawn from the text's hash, with NaN for "damaged"."""

    dimension, max_length, skipped, workers, most = 4, 16, 0, 1, 4

    def __init__(self, prompt: str = ""):
        self.prompt, self.batches, self.warmed, self.cut = prompt, [], [], []
        self.go_on = threading.Event()  # batches wait for it
        self.go_on.set()

    def tokenize(self, texts):
        texts = [self.prompt + text for text in texts]
        cut = self.max_length
        return [Sentence(text, np.arange(min(len(text), cut)), max(len(text) - cut, 0)) for text in texts]

    def row_length(self, sentence):
        return 8 if len(sentence.ids) <= 8 else 16

    def choose(self, length, sizes):
        rows = 2 if len(sizes) <= 2 else 32 // length
        return Shape(rows, length, rows * length), range(min(rows, len(sizes)))

    def encode(self, sentences, shape):
        assert self.go_on.wait(20)
        assert len(sentences) <= shape.rows and all(len(each.ids) <= shape.length for each in sentences)
        self.batches.append([each.text for each in sentences])
        if any(each.text == "fails" for each in sentences):
            raise RuntimeError("the encoder failed")
        return np.stack([self.alone(each.text) for each in sentences])

    def alone(self, text):
        if text == "damaged":
            return np.full(4, np.nan, np.float32)
        seed = sum(ord(letter) * 31**place for place, letter in enumerate(text)) % 2**31
        return np.random.default_rng(seed).normal(size=4).astype(np.float32)

    def shapes(self):
        return [Shape(2, 8, 16), Shape(4, 8, 32), Shape(2, 16, 32)]

    def warm(self, shape):
        self.warmed.append(shape)


class FakeReranker(FakeEncoder):
    """A token a character of both texts; the score is the number of the query's letters in the document."""

    dimension = 1

    def tokenize(self, texts):
        joined = ["|".join(pair) for pair in texts]
        return super().tokenize(joined)

    def first_tokens(self, texts, most):
        self.cut.append(len(texts))
        return [text[:most] for text in texts]

    def alone(self, text):
        query, document = text.split("|")
        return np.float32([sum(document.count(letter) for letter in query)])


class Started(NamedTuple):
    """A running application."""

    client: httpx.AsyncClient
    app: App
    guard: Guard
    encoder: FakeEncoder


@contextlib.asynccontextmanager
async def started(encoder=None, search=None, key=None, names=None, wait=True, reranker=None, **limits) -> AsyncIterator:
    """The whole application, asked without sockets; `wait` until it is ready."""
    encoder, limits, metrics = encoder or FakeEncoder(), Limits(**limits), Metrics()
    encoders = {None: encoder, "query": encoder}
    more = {"observe": metrics.count_batch, "reranker": ("judge", reranker) if reranker else None}
    service = Service("fake", encoders, limits, search=search, query_prompt="query", **more)
    app = App(service, metrics)
    guard = Guard(app.asgi, limits, metrics, app.paths, key, names)
    transport = httpx.ASGITransport(guard, raise_app_exceptions=False)
    async with (
        app.asgi.router.lifespan_context(app.asgi),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as client,
    ):
        while wait and (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0)
        yield Started(client, app, guard, encoder)


def play(scene, **options) -> None:
    """Runs `scene(server)`, a coroutine function, with a server of its own."""

    async def main():
        async with asyncio.timeout(30), started(**options) as server:
            await scene(server)

    asyncio.run(main())


def played(**options):
    """Makes a test of a scene, which is played with these options."""
    return lambda scene: lambda: play(scene, **options)
