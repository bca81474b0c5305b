"""Refusals of requests, in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

LONGEST = 500  # characters of a message
# OpenAI's error code for a status, where the error has none of its own.
CODES = {401: "invalid_api_key", 408: "timeout", 413: "request_too_large", 429: "rate_limit_exceeded", 504: "timeout"}
TYPES = {429: "rate_limit_error"}


class Refused(Exception):
    """A request that is not answered."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ):
        """`param` is the field of the request that is wrong, `code` a word for programs."""
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code or CODES.get(status), headers

    def response(self) -> Response:
        """The answer that says so."""
        message = str(self)
        about = {
            "message": message if len(message) <= LONGEST else f"{message[:LONGEST]}…",
            "type": TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error"),
            "param": self.param,
            "code": self.code,
        }
        content = json.dumps({"error": about}).encode()  # in ASCII: a message may have half a surrogate pair
        return Response(content, self.status, dict(self.headers), "application/json")


class Later(Refused):
    """One that may be sent again after so many seconds."""

    def __init__(self, status: int, message: str, seconds: float, code: str | None = None):
        super().__init__(status, message, code=code, headers={"Retry-After": f"{max(seconds, 1):.0f}"})


def refusal_of(error: Exception, path: str) -> Refused:
    """What an error in the application is to the client."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RequestValidationError):
        return _wrong_field(error)
    if not isinstance(error, HTTPException):
        return Refused(500, "the server failed; its log says more")
    status = error.status_code
    if status == HTTPStatus.BAD_REQUEST:
        return Refused(status, "the body is not JSON in UTF-8", code="not_json")
    missing = status == HTTPStatus.NOT_FOUND
    message = f"there is no {path!r:.100}; /docs lists what there is" if missing else HTTPStatus(status).phrase
    return Refused(status, message, None, "unknown_url" if missing else None, error.headers or {})


def _wrong_field(error: RequestValidationError) -> Refused:
    """The first mistake in a body that violates its schema."""
    first = error.errors()[0]
    field, *inside = [str(part) for part in first["loc"] if part != "body"] or [""]
    if first["type"] == "json_invalid":
        return Refused(400, f"the body is not JSON: {first['ctx']['error']}", code="not_json")
    if not field:
        return Refused(400, "the body must be a JSON object, with the header Content-Type: application/json")
    place = "".join(f"[{part}]" for part in inside)
    return Refused(400, f"{field[:60]}{place[:60]}: {first['msg']}", field[:60])
