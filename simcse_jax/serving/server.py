"""An ASGI application on a port, until SIGTERM or Ctrl-C; requests that are in progress then are answered."""

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from simcse_jax.errors import UserError

# Seconds that a connection without requests stays. Proxies keep theirs for 60: a request that one sends into a
# connection that ends at this moment would be lost.
KEPT = 75


def address_of(bound: socket.socket) -> str:
    """Where a client finds it."""
    host, port, *_ = bound.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(
    app: Any,
    bound: socket.socket,
    seconds: float,
    line: str,
    failure: Callable[[], BaseException | None] = lambda: None,
) -> None:
    """Serves until SIGTERM, which ends it quietly, or Ctrl-C, or a failure.

    Each closes the port first, then waits for the requests in progress.

    Args:
      seconds: that a request may take; so long it waits at the end.
      line: a line on standard output, once it serves.
      failure: for which it cannot go on; asked again and again.

    Raises:
      KeyboardInterrupt: after Ctrl-C.
      UserError: when another program has taken the port since `bind`.
      Exception: the failure.
    """
    config = uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=math.ceil(seconds) + 1,
    )
    with _quiet_end():
        asyncio.run(_Server(config, line, failure).serve(sockets=[bound]))
    if (error := failure()) is not None:
        raise error


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, line: str, failure: Callable[[], BaseException | None]):
        super().__init__(config)
        self._line, self._failure = line, failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:  # two programs can be bound to a port, but only one can listen
            await self.lifespan.shutdown()
            raise UserError(f"--port: {error.strerror}; choose another") from None
        if self.started:
            with contextlib.suppress(OSError):  # standard output may be closed
                print(self._line, flush=True)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._failure() is not None


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """Uvicorn raises the signal that ended it once more: after SIGTERM nothing more is to be done."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
