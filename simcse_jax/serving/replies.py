"""Error responses in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

LONGEST = 500  # characters of a message
# OpenAI's error code for a status, where the error has none of its own.
CODES = {401: "invalid_api_key", 408: "timeout", 413: "request_too_large", 429: "rate_limit_exceeded", 504: "timeout"}
TYPES = {429: "rate_limit_error"}


def error(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response with this status.

    Args:
      param: the field of the request that is wrong.
      code: a word for programs.
    """
    about = {
        "message": message if len(message) <= LONGEST else f"{message[:LONGEST]}…",
        "type": TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
        "param": param,
        "code": code or CODES.get(status),
    }
    content = json.dumps({"error": about}).encode()  # in ASCII: a message may have half a surrogate pair
    return Response(content, status, dict(headers or {}), "application/json")


def retry(status: int, message: str, seconds: float, code: str | None = None) -> Response:
    """A response that asks to try again after so many seconds."""
    return error(status, message, code=code, headers={"Retry-After": f"{max(seconds, 1):.0f}"})


def plain(status: int, path: str) -> Response:
    """A response whose status says it all."""
    if status == HTTPStatus.NOT_FOUND:
        return error(status, f"there is no {path!r:.100}; /docs lists what there is", code="unknown_url")
    return error(status, HTTPStatus(status).phrase)


def wrong_fields(errors: Sequence[Mapping[str, Any]]) -> Response:
    """A response to a body that violates its schema, about the first mistake.

    `errors`: pydantic's, with where each is (`loc`), its `type` and its message (`msg`).
    """
    first = errors[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        return error(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}", code="not_json")
    field = place[0] if place else None
    if first["type"] == "missing" and field:
        message = f"{field}: is missing"
    elif first["type"] == "extra_forbidden":
        message = f"{field!r:.60}: no such field"
    elif field:
        message = f"{field}: {first['msg']}"
    else:
        message = "the body must be a JSON object, with the header Content-Type: application/json"
    return error(400, message, param=field and field[:60])
