"""Which requests the page answers: those sent to its own address, by itself, for what it needs.

A website that is open in the same browser can send requests to 127.0.0.1, and a name that it controls can point there
(DNS rebinding). It cannot choose the headers `Host` and `Origin`, in which the browser names the site.
"""

import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from simcse_jax.errors import reason

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")  # the --host that serves at all addresses of the machine
MOST_BYTES = 32 * 2**20  # of a request: 200 sentences of 20,000 characters, each written as an escape of six bytes
# What the page and `gradio_client` ask Gradio's server for. Uploads, files, proxies, monitoring etc. are off.
READ = (
    *("/config", "/static/", "/assets/", "/svelte/", "/favicon.ico", "/theme.css", "/manifest.json", "/pwa_icon"),
    *("/robots.txt", "/gradio_api/info", "/gradio_api/openapi.json", "/gradio_api/startup-events"),
    *("/gradio_api/app_id", "/gradio_api/theme.css", "/gradio_api/heartbeat/", "/gradio_api/queue/data"),
    *("/gradio_api/call/", "/gradio_api/token", "/gradio_api/user", "/gradio_api/login_check"),
)
WRITTEN = (
    *("/gradio_api/queue/join", "/gradio_api/call/", "/gradio_api/run/", "/gradio_api/api/"),
    *("/gradio_api/cancel", "/gradio_api/reset"),
)


class HostNames:
    """The names and addresses in `Host` that are the page's own."""

    def __init__(self, host: str, further: Iterable[str] = ()):
        """`host` is the address that the page is served at, `further` are other names of this machine."""
        self._others = {_bare(name) for name in further}
        self._known = {*map(_bare, (*LOCAL_NAMES, host)), *self._others}
        # No website can make its own name look like an address, so any address is right where all are served.
        self._any_address = _bare(host) in EVERYWHERE

    def add(self, name: str) -> None:
        """Adds a name."""
        self._known.add(_bare(name))

    def __contains__(self, name: str | None) -> bool:
        if name is None:  # no valid one
            return False
        return _bare(name) in self._known or (self._any_address and _is_address(_bare(name)))

    def are_origin(self, origin: str, host: str) -> bool:
        """Whether a request to `host` comes from the page itself.

        A proxy in front may put a local name in the place of one that was allowed.
        """
        try:
            site = urlsplit(origin)
            proxied = host_name(host) in LOCAL_NAMES and _bare(site.hostname or "") in self._others
        except ValueError:
            return False
        return site.netloc.lower() == host.lower() or proxied

    def __str__(self) -> str:
        return ", ".join(sorted(self._known)) + ", or any address" * self._any_address


def refusal(method: str, path: str, headers: Mapping[str, str], names: HostNames) -> tuple[int, str] | None:
    """Why a request is refused, with a status of HTTP; None if it is not.

    Args:
      path: without the query.
      headers: by their names in lower case.
    """
    host = headers.get("host", "")
    if host_name(host) not in names:
        return 403, f"this page answers to {names}, not to {host!r:.100}; --allow-host NAME adds a name"
    origin = headers.get("origin")
    if origin is not None and not names.are_origin(origin, host):
        return 403, f"a request from {origin!r:.100}, which is another site"
    reading = method in ("GET", "HEAD")
    followed = reading and headers.get("sec-fetch-dest") == "document"  # a link on another site
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not followed:
        return 403, "a request from another site"
    needed = path == "/" or path.startswith(READ) if reading else method == "POST" and path.startswith(WRITTEN)
    if not needed:
        return 403, f"{method} {path!r:.100} is off"
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdecimal() or int(length[:20]) > MOST_BYTES:
        return 413, f"a request may have {MOST_BYTES:,} bytes, which its header Content-Length must say"
    return None


def body_refusal(body: bytes) -> tuple[int, str] | None:
    """Why the JSON of a request is refused, as for `refusal`.

    Gradio takes an object with `meta` and `path` for a file, and downloads it whatever the argument is meant to be.
    """

    def look(pairs: list[tuple[str, Any]]) -> None:
        if any(name in ("meta", "path") for name, _ in pairs):
            raise ValueError("it has a file; the page takes texts and numbers")

    try:
        json.loads(body or b"null", object_pairs_hook=look)
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested too deeply
        return 400, f"the body: {reason(error)}"
    return None


class DemoGuard:
    """An ASGI application that passes on only the requests that are not refused."""

    def __init__(self, app: "ASGIApp", names: HostNames):
        self._app, self._names = app, names

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answers one request."""
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse

        if scope["type"] == "websocket":  # the page uses none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused, kept = refusal(scope["method"], scope["path"], headers, self._names), []
        if refused is None and scope["method"] == "POST":
            body = await Request(scope, receive).body()  # whose length was checked
            refused, kept = body_refusal(body), [{"type": "http.request", "body": body, "more_body": False}]
        if refused is None:

            async def again() -> "Message":
                return kept.pop() if kept else await receive()

            return await self._app(scope, again, send)
        status, text = refused
        message = f"refused: {text}\n".encode(errors="backslashreplace")
        await PlainTextResponse(message, status, {"connection": "close"})(scope, receive, send)


def launch_options(names: HostNames) -> dict[str, Any]:
    """The arguments of Gradio's `launch` that guard a page."""
    from starlette.middleware import Middleware

    return {
        "app_kwargs": {"middleware": [Middleware(DemoGuard, names=names)]},
        "max_file_size": 1,  # byte: uploads are refused before, this holds if Gradio gives them another path
        "enable_monitoring": False,
        "mcp_server": False,
        "ssr_mode": False,  # another server in front, which would be asked instead
    }


def _bare(name: str) -> str:
    return name.strip("[]").lower()


def host_name(host: str) -> str | None:
    """`Host` without the port; None if it is not valid."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is not a number
        return parts.hostname if parts.netloc == host and "@" not in host else None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False
