"""Checks of a request before its content: host, key, size, number and time; and what is counted afterwards."""

import asyncio
import hmac
import time
from collections.abc import Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from simcse_jax.serving import replies
from simcse_jax.serving.demo_guard import HostNames, host_name
from simcse_jax.serving.prometheus import Metrics
from simcse_jax.serving.service import Limits

PROTECTED = "/v1/"  # needs the key; health, metrics and the description of the API do not
UNREAD = 64 * 2**20  # bytes of a body that is too large, which are read and dropped so that the client sees the answer
CLOSE = {"Connection": "close"}
HUNG_UP = 499  # the status that nginx counts for a client that has gone


class _Gone(Exception):
    """The client has hung up."""


class _Watched:
    """`send`, which remembers how far the answer is."""

    def __init__(self, send: Send):
        self._send, self.status, self.finished = send, 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body", False)
        await self._send(message)


class Guard:
    """An ASGI application that passes on the requests that are not refused, each with its whole body."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        paths: Collection[str],
        key: str | None = None,
        names: HostNames | None = None,
    ):
        """Refuses what the limits do not allow.

        Args:
          paths: that are counted by their names.
          key: that requests to `/v1/` must have; None asks for none.
          names: that `Host` may have. A website that is open in a browser on this machine could let a name of its own
            point here (DNS rebinding), and read answers. None allows any: a website has no key.
        """
        self._app, self._limits, self._metrics, self._paths = app, limits, metrics, paths
        self._key = None if key is None else key.encode()
        self._names, self._in_progress, self._held = names, 0, 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started, watched = time.monotonic(), _Watched(send)
        status = 500
        self._metrics.in_progress.inc()
        try:
            await self._answer(scope, receive, watched)
            status = watched.status
        except _Gone:
            status = HUNG_UP
        finally:
            self._metrics.in_progress.dec()
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.count_request(path, status, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        refused, arrived = self._refusal(scope), False
        body = bytearray()
        kept = refused is None and scope["path"].startswith(PROTECTED)  # nothing else has a use for a body
        self._in_progress += kept  # what is refused takes no place of others, however long its body takes
        try:
            async with asyncio.timeout(self._limits.seconds):
                most = 0 if refused else self._limits.body  # what is refused is read too: else no client sees why
                wrong = await self._read(receive, body, most, _length(scope), kept)
                refused, arrived = refused or wrong, True
                if refused is None:
                    await self._pass_on(scope, bytes(body), receive, send)
        except TimeoutError:
            seconds = f"{self._limits.seconds:g} s"
            late = replies.error(408, f"no whole request in {seconds}", headers=CLOSE)
            refused = replies.error(504, f"no answer in {seconds}") if arrived else refused or late
        finally:
            self._in_progress -= kept
            self._held -= len(body)
        if refused is not None and not send.status:
            await refused(scope, receive, send)

    async def _read(self, receive: Receive, body: bytearray, most: int, announced: int, kept: bool) -> Response | None:
        """Reads the body of a request, to its end if that is near, into `body` if it is `kept`; refuses a large one."""
        size, crowded, far = 0, False, max(most, UNREAD)
        more = announced <= far
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            size, more = size + len(part), message.get("more_body", False)
            if size > far:
                break
            crowded = crowded or (kept and self._held + len(part) > self._limits.bodies)
            if crowded:
                self._held -= len(body)
                body.clear()
            elif kept and max(size, announced) <= most:
                self._held += len(part)
                body += part
        if max(size, announced) > most:
            problem = f"the body is too large: a request may have {self._limits.body:,} bytes"
            return replies.error(413, problem, headers=CLOSE)
        if crowded:
            return replies.retry(429, f"the requests in progress have more than {self._limits.bodies:,} bytes", 1)
        return None

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: _Watched) -> None:
        """Passes the request on, unless the client hangs up first."""
        kept = [{"type": "http.request", "body": body, "more_body": False}]
        never = asyncio.Event()

        async def again() -> Message:
            if not kept:
                await never.wait()
            return kept.pop()

        answer, gone = asyncio.ensure_future(self._app(scope, again, send)), asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not send.finished:
                raise _Gone
            await answer
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
        host = headers.get("host", b"").decode("latin-1")
        if self._names is not None and host_name(host) not in self._names:
            return replies.error(403, f"{host!r:.100} is not a name of this server (--allow-host NAME adds one)")
        if self._key is not None and scope["path"].startswith(PROTECTED):
            kind, _, key = headers.get("authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key):
                missing = "this server needs its key: Authorization: Bearer KEY"
                message = "Incorrect API key provided" if key else missing
                return replies.error(401, message, headers={"WWW-Authenticate": "Bearer"} | CLOSE)
        if self._in_progress >= self._limits.requests and scope["path"].startswith(PROTECTED):
            return replies.retry(429, f"more than {self._limits.requests} requests at the same time", 1)
        return None


def _length(scope: Scope) -> int:
    """The number of bytes that the header announces; 0 if it does not."""
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value[:20]) if value.isdigit() else 0
