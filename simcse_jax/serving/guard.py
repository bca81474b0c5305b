"""Checks of a request before its content: host, key, size, number and time; and what is counted afterwards."""

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from simcse_jax.serving.prometheus import Metrics
from simcse_jax.serving.replies import Later, Refused
from simcse_jax.serving.service import Limits

PROTECTED = "/v1/"  # needs the key; health, metrics and the description of the API do not
UNREAD = 64 * 2**20  # bytes of a body that is refused, which are read and dropped so that the client sees the answer
CLOSE = {"Connection": "close"}
HUNG_UP = 499  # the status that nginx counts for a client that has gone
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = {"0.0.0.0", "::"}  # where a host's names can be any of its addresses


class _Gone(Exception):
    """The client has hung up."""


class Guard:
    """An ASGI application that passes on the requests that are not refused, each with its whole body."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        paths: Collection[str],
        key: str | None = None,
        names: Collection[str] | None = None,
    ):
        """Refuses what the limits do not allow.

        Args:
          paths: that are counted by their names.
          key: that requests to `/v1/` must have; None asks for none.
          names: that `Host` may have besides the local ones. A website that is open in a browser on this machine could
            let a name of its own point here (DNS rebinding), and read answers. None allows any: a website has no key.
        """
        self._app, self._limits, self._metrics, self._paths = app, limits, metrics, paths
        self._key = None if key is None else key.encode()
        self._names = None if names is None else {name.strip("[]").lower() for name in (*LOCAL_NAMES, *names)}
        self._in_progress, self._held = 0, 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._metrics.in_progress.inc()
        try:
            await self._answer(scope, receive, watched)
        except Refused as refused:
            if not status:
                await refused.response()(scope, receive, watched)
        except _Gone:
            status = HUNG_UP
        finally:
            self._metrics.in_progress.dec()
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.count_request(path, status or 500, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused, arrived = self._refusal(scope), False
        if refused is None and not scope["path"].startswith(PROTECTED):
            await self._app(scope, receive, send)
            return
        taken = refused is None  # what is refused takes no place of others, however long its body takes
        body = bytearray()
        self._in_progress += taken
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._read(receive, body, refused)
                arrived = True
                await self._pass_on(scope, bytes(body), receive, send)
        except TimeoutError:
            seconds = f"{self._limits.seconds:g} s"
            if arrived:
                raise Refused(504, f"no answer in {seconds}") from None
            raise refused or Refused(408, f"no whole request in {seconds}", headers=CLOSE) from None
        finally:
            self._in_progress -= taken
            self._held -= len(body)

    async def _read(self, receive: Receive, body: bytearray, refused: Refused | None) -> None:
        """Reads the body; what is refused is read too, or no client would see why."""
        size, more = 0, True
        while more and size <= max(self._limits.body, UNREAD):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if refused is None and size > self._limits.body:
                refused = Refused(413, f"a request may have {self._limits.body:,} bytes", headers=CLOSE)
            if refused is None and self._held + len(part) > self._limits.bodies:
                refused = Later(429, f"the requests in progress have more than {self._limits.bodies:,} bytes", 1)
            if refused is None:
                body += part
                self._held += len(part)
        if refused is not None:
            raise refused

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Passes the request on, unless the client hangs up first."""
        kept: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        finished = asyncio.Event()

        async def again() -> Message:
            if not kept:
                await finished.wait()
            return kept.pop() if kept else {"type": "http.disconnect"}

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                finished.set()
            await send(message)

        answer, gone = asyncio.ensure_future(self._app(scope, again, watched)), asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not finished.is_set():
                raise _Gone
            await answer
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    def _refusal(self, scope: Scope) -> Refused | None:
        headers = Headers(scope=scope)
        if not self._is_named(headers.get("host", "")):
            named = f"{headers.get('host', '')!r:.100} is not a name of this server (--allow-host NAME adds one)"
            return Refused(403, named)
        if not scope["path"].startswith(PROTECTED):
            return None
        kind, _, key = headers.get("authorization", "").partition(" ")
        if self._key is not None:
            is_right = hmac.compare_digest(key.strip().encode(), self._key)
            if kind.lower() != "bearer" or not is_right:
                missing = "this server needs its key: Authorization: Bearer KEY"
                message = "Incorrect API key provided" if key else missing
                return Refused(401, message, headers={"WWW-Authenticate": "Bearer"} | CLOSE)
        if self._in_progress >= self._limits.requests:
            return Later(429, f"more than {self._limits.requests} requests at the same time", 1)
        return None

    def _is_named(self, host: str) -> bool:
        if self._names is None:
            return True
        try:
            name = urlsplit(f"//{host}").hostname
            # No website can make its own name look like an address, so any address is right where all are served.
            return name in self._names or bool(self._names & EVERYWHERE and name and ipaddress.ip_address(name))
        except ValueError:
            return False
