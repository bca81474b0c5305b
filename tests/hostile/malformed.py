"""Malformed requests to a server, drawn at random: each with the answers that it may get."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

REFUSED = frozenset({400, 404, 405, 413, 431})
JSON = "Content-Type: application/json"
VALUES: list[Any] = [None, True, False, 0, -1, 3, 10**30, 1.5, "", "a", "x" * 5000, "\0", "é" * 50, [], {}, [None], [1]]
VALUES += [[[1, 2]], {"a": "b"}, ["a", 1], ["", "a"], [["a"]], float("nan"), float("inf"), "\ud800", ["\udcff"], [{}]]
FIELDS = ("input", "model", "encoding_format", "dimensions", "prompt_name", "user", "query", "top_k", "threshold", "x")


class Bad(NamedTuple):
    """Bytes to send, and the statuses that may answer them; none of them: the connection may end without an answer."""

    sent: bytes
    statuses: frozenset[int] = REFUSED
    may_hang_up: bool = False


def request(content: bytes, *headers: str, method: str = "POST", path: str = "/v1/embeddings") -> bytes:
    """A request as bytes; it ends its connection."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    if not any(header.lower().startswith(("content-length", "transfer-encoding")) for header in headers):
        lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def draw(seed: str, model: str) -> Iterator[Bad]:
    """Endless; the same for the same seed."""
    chance = random.Random(seed)
    kinds: list[Callable[[random.Random, str], Bad]] = [wrong_field, cut_json, noise, wrong_path, wrong_http, too_large]
    weights = [40, 20, 15, 10, 14, 1]
    while True:
        yield chance.choices(kinds, weights)[0](chance, model)


def good(model: str) -> dict[str, Any]:
    return {"model": model, "input": ["the cat", "a dog"], "encoding_format": "float", "dimensions": 4}


def wrong_field(chance: random.Random, model: str) -> Bad:
    """JSON with a needed field that is missing, empty or of a wrong type, next to others of any kind."""
    path = chance.choice(("/v1/embeddings", "/v1/search"))
    fields = good(model) if path == "/v1/embeddings" else {"query": "the cat", "top_k": 3}
    name = chance.choice(["model", "input"] if path == "/v1/embeddings" else ["query"])
    for _ in range(chance.randrange(3)):
        fields[chance.choice(FIELDS)] = chance.choice(VALUES) if chance.random() < 0.5 else {"deep": [{}]}
    fields[name] = chance.choice([value for value in VALUES if not value or not isinstance(value, str | list)])
    if chance.random() < 0.3:
        del fields[name]
    return Bad(request(json.dumps(fields).encode(), JSON, path=path))


def cut_json(chance: random.Random, model: str) -> Bad:
    """JSON that ends too early, or has bytes that were changed so that it is none."""
    content = json.dumps(good(model)).encode()
    if chance.random() < 0.5:
        return Bad(request(content[: chance.randrange(len(content))], JSON))
    place = chance.randrange(len(content))
    return Bad(request(content[:place] + chance.choice([b"\xff", b"\x00", b"\xc3("]) + content[place:], JSON))


def noise(chance: random.Random, model: str) -> Bad:
    """Random bytes, nested lists, long numbers, other formats."""
    contents = [chance.randbytes(chance.randrange(2000)), b"<xml/>", b"input=a&model=b"]
    contents += [part * chance.randrange(1, 50_000) for part in (b"[", b"[[[[", b'{"input":', b"9")]
    headers = chance.choice([[JSON], [], ["Content-Type: text/plain"], ["Content-Type: multipart/form-data"]])
    return Bad(request(chance.choice(contents), *headers, path=chance.choice(("/v1/embeddings", "/v1/search"))))


def wrong_path(chance: random.Random, model: str) -> Bad:
    """Paths and methods that there are not."""
    path = "/" + "".join(chance.choices("abcv1/.%-_~?", k=chance.randrange(1, 200)))
    method = chance.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"))
    if path.split("?")[0] in ("/", ""):
        path = "/nowhere"
    return Bad(request(b"", method=method, path=path))


def wrong_http(chance: random.Random, model: str) -> Bad:
    """What is hardly HTTP. A server may end such a connection; it must not answer it as a good one."""
    chunked, sent = "Transfer-Encoding: chunked", [chance.randbytes(chance.randrange(1, 500)) + b"\r\n\r\n"]
    sent += [b"GET\r\n\r\n", b"POST /v1/embeddings HTTP/9.9\r\n\r\n", request(b"", "X: " + "y" * 100_000)]
    sent += [b"POST /v1/embeddings HTTP/1.1\r\n\r\n"]  # no Host
    sent += [request(b"", "Content-Length: -5"), request(b"", "Content-Length: many")]
    sent += [request(b"{}", "Content-Length: 2", "Content-Length: 5")]
    sent += [request(b"{}", "Content-Length: 9999", JSON)]  # less than it says
    sent += [request(b"zz\r\n{}\r\n", chunked, JSON), request(b"ffffffffffffffffff\r\n", chunked, JSON)]
    return Bad(chance.choice(sent), REFUSED | {403}, may_hang_up=True)  # 403: no Host


def too_large(chance: random.Random, model: str) -> Bad:
    """More bytes than a request may have."""
    size = chance.randrange(2**20 + 1, 3 * 2**20)
    if chance.random() < 0.5:
        return Bad(request(b"x" * size, JSON))
    return Bad(request(b"%x\r\n%s\r\n0\r\n\r\n" % (size, b"x" * size), "Transfer-Encoding: chunked", JSON))
