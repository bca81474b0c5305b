"""An object store in memory with the parts of Google Cloud Storage's JSON API that the tests need.

As in the real one, an object appears when it is complete, nothing can be appended to it, each write gives it a new
generation, and there are no folders, only names with slashes. Listings come in short pages.
"""

import base64
import hashlib
import importlib.util
import itertools
import json
import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import BytesParser
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from support import loopback, xml_store

NEEDS_GCSFS = pytest.mark.skipif(importlib.util.find_spec("gcsfs") is None, reason="gcsfs is not installed")
WRITING = "POST|PUT|DELETE"  # for `refused`
PAGE = 7  # entries per page of a listing; clients must ask for the next page


@dataclass(frozen=True)
class Object:
    data: bytes
    generation: int
    written: str


class Refusal(Exception):
    """An error response: a status code, and the reason."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


class ObjectStore(loopback.Loopback):
    """Serves one bucket on a free port of this machine, for as long as the `with` block lasts."""

    def __init__(self, bucket: str = "bucket"):
        self.bucket = bucket
        self.objects: dict[str, Object] = {}
        self.refused: str | None = None  # a regular expression: matching requests are forbidden
        self.requests: list[str] = []  # all requests, as "METHOD path"
        self._uploads: dict[str, tuple[str, bytes]] = {}  # unfinished, not visible to clients
        self.parts: dict[str, dict[int, bytes]] = {}  # of unfinished uploads by the XML API
        self._numbers = itertools.count(1_700_000_000_000_000)
        self._lock = threading.Lock()
        super().__init__(type("Handler", (Handler,), {"store": self}))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make a process use this store."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,  # gcsfs and google-cloud-storage
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",  # TensorStore's
            "NO_GCE_CHECK": "true",  # google-auth: do not look for credentials on a virtual machine's metadata server
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # would ask for the bucket's type by gRPC
        }

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in list(self.objects) if name.startswith(prefix))

    def text(self, name: str) -> str:
        return self.objects[name].data.decode()

    def put(self, name: str, data: bytes, match: str | None = None) -> dict[str, object]:
        with self._lock:
            self._check(name, match)
            self.objects[name] = Object(data, next(self._numbers), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
            return self.describe(name)

    def get(self, name: str, generation: str | None = None) -> Object:
        found = self.objects.get(name)
        if found is None or (generation and int(generation) != found.generation):
            raise Refusal(404, f"No such object: {self.bucket}/{name}")
        return found

    def delete(self, name: str, match: str | None = None) -> None:
        with self._lock:
            self.get(name)
            self._check(name, match)
            del self.objects[name]

    def copy(self, name: str, target: str, move: bool = False) -> dict[str, object]:
        described = self.put(target, self.get(name).data)
        if move:
            self.delete(name)
        return described

    def start_upload(self, name: str) -> str:
        key = str(next(self._numbers))
        self._uploads[key] = (name, b"")
        return key

    def continue_upload(self, key: str, content_range: str, data: bytes, match: str | None) -> dict[str, object] | int:
        """Adds a part to an upload; returns the object after the last part, otherwise the size so far."""
        name, before = self._uploads[key]
        first, total = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", content_range).groups()
        if first is not None and int(first) != len(before):
            raise Refusal(503, "not where the last part ended")
        whole = before + data
        if total == str(len(whole)):
            del self._uploads[key]
            return self.put(name, whole, match)
        self._uploads[key] = (name, whole)
        return len(whole)

    def list(self, query: dict[str, str]) -> dict[str, object]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        start, end = query.get("startOffset", ""), query.get("endOffset", "")
        entries: dict[str, bool] = {}  # by name, whether it is an object (True) or a common prefix
        for name in self.names(prefix):
            if name < start or (end and name >= end):
                continue
            head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            entries[prefix + head + cut if cut else name] = not cut
        left = [entry for entry in entries if entry > query.get("pageToken", "")]
        page = left[: min(PAGE, int(query.get("maxResults", PAGE)))]
        answer: dict[str, object] = {"kind": "storage#objects"}
        answer["items"] = [self.describe(entry) for entry in page if entries[entry] and entry in self.objects]
        answer["prefixes"] = [entry for entry in page if not entries[entry]]
        return answer | ({"nextPageToken": page[-1]} if len(page) < len(left) else {})

    def describe(self, name: str) -> dict[str, object]:
        from google_crc32c import Checksum  # of the clients

        found = self.get(name)
        md5 = base64.b64encode(hashlib.md5(found.data).digest()).decode()
        fields = {"kind": "storage#object", "name": name, "bucket": self.bucket, "metageneration": "1", "md5Hash": md5}
        fields |= {"size": str(len(found.data)), "generation": str(found.generation)}
        fields |= {"crc32c": base64.b64encode(Checksum(found.data).digest()).decode()}
        return fields | {"timeCreated": found.written, "updated": found.written}

    def _check(self, name: str, match: str | None) -> None:
        found = self.objects.get(name)
        if match is not None and int(match) != (found.generation if found else 0):
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")


class Handler(loopback.Handler):
    """Translates between HTTP and the store."""

    store: ObjectStore

    def handle_request(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client died
            self.close_connection = True
            return
        request = f"{self.command} {self.path}"
        self.store.requests.append(request)
        try:
            if self.store.refused is not None and re.match(self.store.refused, request):
                raise Refusal(403, "The caller does not have permission")
            answer = self.answer(body)
        except Refusal as refusal:
            answer = refusal.status, {"error": {"code": refusal.status, "message": str(refusal)}}, {}
        status, content, headers = answer
        data = self.send_head(status, content, headers)
        if status not in (204, 304) and self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request

    def answer(self, body: bytes) -> tuple[int, bytes | dict, dict[str, object]]:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        store, match = self.store, query.get("ifGenerationMatch")
        place = re.fullmatch(r"/(upload/|download/|)storage/v1/b/(.+)", url.path)
        if not place:
            return self.answer_xml(url.path, query, body)
        kind, path = place.groups()
        bucket, *parts = [unquote(part) for part in path.split("/")]
        if bucket != store.bucket:
            raise Refusal(404, "The specified bucket does not exist.")
        match self.command, kind, parts:
            case "GET", "", []:
                return 200, {"kind": "storage#bucket", "name": bucket, "id": bucket}, {}
            case "GET", "", ["o"]:
                return 200, store.list(query), {}
            case "GET", _, ["o", name]:
                found = store.get(name, query.get("generation"))
                if query.get("ifGenerationNotMatch") == str(found.generation):
                    return 304, b"", {}
                if match not in (None, str(found.generation)):
                    raise Refusal(412, "another generation")
                if query.get("alt") != "media":
                    return 200, store.describe(name), {}
                return self.part(found)
            case "POST", "upload/", ["o"] if query["uploadType"] == "media":
                return 200, store.put(query["name"], body, match), {}
            case "POST", "upload/", ["o"] if query["uploadType"] == "multipart":
                head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
                fields, data = BytesParser().parsebytes(head + body).get_payload()
                # The parser is for text, so the bytes between the boundaries are cut out by hand.
                boundary = re.search(r'boundary="?([^";]+)', self.headers["Content-Type"])[1].encode()
                _, data = re.split(rb"\r?\n\r?\n", body.split(b"--" + boundary)[2], maxsplit=1)
                data = data.removesuffix(b"\n").removesuffix(b"\r")
                return 200, store.put(json.loads(fields.get_payload())["name"], data, match), {}
            case "POST" | "PUT", "upload/", ["o"] if "upload_id" in query:
                done = store.continue_upload(query["upload_id"], self.headers["Content-Range"], body, match)
                return (200, done, {}) if isinstance(done, dict) else (308, b"", {"Range": f"bytes=0-{done - 1}"})
            case "POST", "upload/", ["o"]:
                name = query.get("name") or json.loads(body)["name"]
                return 200, b"", {"Location": f"{store.url}{self.path}&upload_id={store.start_upload(name)}"}
            case "DELETE", "", ["o", name]:
                store.delete(name, match)
                return 204, b"", {}
            case "POST", "", ["o", name, "moveTo", "o", target]:
                return 200, store.copy(name, target, move=True), {}
            case "POST", "", ["o", name, "rewriteTo", "b", _, "o", target]:
                return 200, {"done": True, "resource": store.copy(name, target)}, {}
            case "POST", "", ["o", name, "copyTo", "b", _, "o", target]:
                return 200, store.copy(name, target), {}
        raise Refusal(400, f"{self.command} {self.path}: not part of this store")

    def answer_xml(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, object]]:
        """As `answer`, by the XML API: /BUCKET/NAME."""
        bucket, _, name = path.removeprefix("/").partition("/")
        if bucket != self.store.bucket:
            raise Refusal(404, "The specified bucket does not exist.")
        name = unquote(name)
        status, data, headers = xml_store.answer(self.store, self.command, name, query, self.headers, body, Refusal)
        if self.command == "GET" and name:
            status, data, more = self.part(self.store.get(name))
            headers |= more
        return status, data, headers

    def part(self, found: Object) -> tuple[int, bytes, dict[str, object]]:
        """An object's bytes, or those of the requested range."""
        headers = {"Content-Type": "application/octet-stream", "x-goog-generation": found.generation}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return 200, found.data, headers
        size, (first, last) = len(found.data), asked.groups()
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        if start >= size:
            raise Refusal(416, "The requested range cannot be satisfied.")
        return 206, found.data[start:stop], headers | {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
