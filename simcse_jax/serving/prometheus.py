"""Figures for Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from simcse_jax.serving.batcher import Done

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counts since the server was started, and its present state."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        named: dict[str, Any] = {"registry": registry}
        timed: dict[str, Any] = {"buckets": SECONDS, **named}
        by = ["path", "status"]
        self._requests = Counter("simcse_requests", "Requests that were answered", by, **named)
        self._seconds = Histogram("simcse_request_seconds", "From a request to its answer", ["path"], **timed)
        of = ["kind"]  # texts or pairs of them
        self._texts = Counter("simcse_texts", "Texts that were encoded, or pairs that were scored", of, **named)
        self._tokens = Counter("simcse_tokens", "Tokens of these texts", of, **named)
        self._computed = Counter("simcse_computed_tokens", "Places for tokens in batches, also empty ones", of, **named)
        self._rows = Histogram("simcse_batch_texts", "Texts of a batch", of, buckets=ROWS, **named)
        self._batch_seconds = Histogram("simcse_batch_seconds", "Time to compute a batch", of, **timed)
        self._waited = Histogram("simcse_queue_seconds", "How long the first text of a batch waited", of, **timed)
        self.in_progress = Gauge("simcse_requests_in_progress", "Requests that are read or answered", **named)
        self._ready = Gauge("simcse_ready", "Whether all programs are compiled", **named)
        self._waiting = Gauge("simcse_waiting_texts", "Texts that wait for a batch", **named)

    def watch(self, ready: Callable[[], bool], waiting: Callable[[], int]) -> None:
        """Takes the present figures from these functions."""
        self._ready.set_function(ready)
        self._waiting.set_function(waiting)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Counts a request; `path` is one of few."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, kind: str, done: Done) -> None:
        """Counts a batch; `kind` is "texts" or "pairs"."""
        batch = done.batch
        self._texts.labels(kind).inc(len(batch.payloads))
        self._tokens.labels(kind).inc(sum(len(sentence.ids) for sentence in batch.payloads))
        self._computed.labels(kind).inc(batch.shape.tokens)
        self._rows.labels(kind).observe(len(batch.payloads))
        self._batch_seconds.labels(kind).observe(done.seconds)
        self._waited.labels(kind).observe(done.waited)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
