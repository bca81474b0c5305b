"""Shared by the tests' servers: HTTP on a free port of this machine, answered by a handler."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Loopback:
    """Serves for as long as the `with` block lasts."""

    def __init__(self, handler: type["Handler"]):
        self._server = _Server(("127.0.0.1", 0), handler)

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one packet

    def log_message(self, *_):
        """Logs nothing."""

    def send_head(self, status: int, content: bytes | dict | list, headers: dict[str, object]) -> bytes:
        """Sends a response's status and headers, and returns its content as bytes."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        return data


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # a client hung up
            super().handle_error(request, client_address)
