"""The parts of Google Cloud Storage's XML API that LanceDB's client needs, in front of the same objects."""

import hashlib
import json
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import unquote
from xml.sax.saxutils import escape

Answer = tuple[int, bytes, dict[str, object]]


def environment(folder: Path, url: str) -> dict[str, str]:
    """The environment variables that make LanceDB use the store; `folder` gets a file."""
    account = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    (folder / "account.json").write_text(json.dumps(account))
    return {"GOOGLE_SERVICE_ACCOUNT": str(folder / "account.json"), "ALLOW_HTTP": "true"}


def answer(store, command: str, name: str, query: dict[str, str], headers, body: bytes, refusal) -> Answer:
    """The response to a request for an object, or for a list of them if `name` is empty."""
    match = headers.get("x-goog-if-generation-match")
    if command == "GET" and not name:
        return 200, _listed(store, query), {"Content-Type": "application/xml"}
    if command in ("GET", "HEAD"):
        found = store.get(name)
        return 200, found.data, _about(found)
    if command == "POST" and "uploads" in query:
        return 200, f"<R><UploadId>{store.start_upload(name)}</UploadId></R>".encode(), {}
    if command == "PUT" and "uploadId" in query:
        store.parts.setdefault(query["uploadId"], {})[int(query["partNumber"])] = body
        return 200, b"", {"ETag": f'"{query["partNumber"]}"'}
    if command == "POST" and "uploadId" in query:
        parts = store.parts.pop(query["uploadId"])
        store.put(name, b"".join(parts[number] for number in sorted(parts)), match)
        return 200, b'<R><ETag>"whole"</ETag></R>', {}
    if command == "PUT":
        source = headers.get("x-goog-copy-source")
        data = body if source is None else store.get(unquote(source).lstrip("/").partition("/")[2]).data
        store.put(name, data, match)
        return 200, b"", _about(store.get(name))
    if command == "DELETE":
        store.delete(name)
        return 204, b"", {}
    raise refusal(400, f"{command} {name}: not part of this store")


def _about(found) -> dict[str, object]:
    written = datetime.fromisoformat(found.written)
    about = {"Last-Modified": format_datetime(written, usegmt=True), "x-goog-generation": found.generation}
    return about | {"ETag": f'"{hashlib.md5(found.data).hexdigest()}"'}


def _listed(store, query: dict[str, str]) -> bytes:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    entries, folders = [], set()
    for name in store.names(prefix):
        head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if cut:
            folders.add(prefix + head + cut)
        elif name > query.get("start-after", ""):
            entries.append(name)
    content = "".join(
        f"<Contents><Key>{escape(name)}</Key><LastModified>{found.written}</LastModified>"
        f'<Size>{len(found.data)}</Size><ETag>"{found.generation}"</ETag></Contents>'
        for name, found in ((name, store.get(name)) for name in entries)
    )
    content += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
    return f"<ListBucketResult>{content}</ListBucketResult>".encode()
