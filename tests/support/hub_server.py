"""A model hub in memory with the parts of huggingface.co's API that the tests need.

As in the real one, a commit appears when it is complete, and a branch is a name of a commit. Large files use Git LFS:
their bytes come first, then a pointer in the commit.
"""

import base64
import hashlib
import itertools
import json
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from support import loopback

Files = dict[str, bytes]
LARGE = (".safetensors", ".bin")  # stored by LFS


@dataclass
class Repository:
    private: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def resolve(self, revision: str) -> str:
        sha = self.branches.get(revision, revision)
        if sha not in self.commits:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha


class Refusal(Exception):
    """An error response: a status code, the hub's code for it, and the reason."""

    def __init__(self, status: int, code: str, why: str):
        super().__init__(why)
        self.status, self.code = status, code


class Hub(loopback.Loopback):
    """Serves on a free port of this machine, for as long as the `with` block lasts."""

    def __init__(self):
        self.tokens: dict[str, dict[str, object]] = {}  # token to {"name", "role", "orgs"}
        self.repositories: dict[str, Repository] = {}
        self.failing: str | None = None  # a regular expression: matching requests get a 500
        self.breaking: str | None = None  # a regular expression: matching responses stop halfway
        self.requests: list[str] = []  # all requests, as "METHOD path"
        self.uploads: dict[str, bytes] = {}  # by SHA-256
        self._numbers = itertools.count(1)
        super().__init__(type("Handler", (Handler,), {"hub": self}))

    def files(self, name: str, revision: str = "main") -> Files:
        repository = self.repositories[name]
        return repository.commits[repository.resolve(revision)]

    def create(self, name: str, private: bool = False) -> None:
        self.repositories[name] = Repository(private)
        self.commit(name, "main", {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})

    def commit(self, name: str, branch: str, files: Files) -> str:
        repository = self.repositories[name]
        before = repository.commits.get(repository.branches.get(branch, ""), {})
        sha = hashlib.sha1(f"{name} {next(self._numbers)}".encode()).hexdigest()
        repository.commits[sha] = before | files
        repository.branches[branch] = sha
        return sha


class Handler(loopback.Handler):
    """Translates between HTTP and the hub."""

    hub: Hub

    def handle_request(self) -> None:
        body = self.read_body()
        request = f"{self.command} {unquote(self.path)}"
        self.hub.requests.append(request)
        try:
            if self.hub.failing is not None and re.match(self.hub.failing, request):
                raise Refusal(500, "", "Internal error")
            status, content, headers = self.answer(body)
        except Refusal as refusal:
            status, content = refusal.status, {"error": str(refusal)}
            headers = {"X-Error-Message": str(refusal)} | ({"X-Error-Code": refusal.code} if refusal.code else {})
        data = self.send_head(status, content, headers)
        if self.command == "HEAD":
            return
        breaks = self.hub.breaking is not None and bool(re.match(self.hub.breaking, request))
        self.wfile.write(data[: len(data) // 2] if breaks else data)
        self.close_connection |= breaks

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def user(self, must: bool = False) -> dict[str, object] | None:
        """The user whose token was sent; None if none was and none must."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.tokens:
            raise Refusal(401, "", "Invalid credentials in Authorization header")
        if must and not token:
            raise Refusal(401, "", "Invalid username or password.")
        return self.hub.tokens.get(token)

    def repository(self, name: str, write: bool = False) -> Repository:
        user, found = self.user(), self.hub.repositories.get(name)
        owners = [user["name"], *user.get("orgs", [])] if user else []
        mine = name.split("/")[0] in owners
        if found is None or (found.private and not mine):
            raise Refusal(404 if user else 401, "RepoNotFound", "Repository not found")
        if write and not (mine and user["role"] == "write"):
            raise Refusal(403, "", "You don't have the rights to push")
        return found

    def answer(self, body: bytes) -> tuple[int, bytes | dict | list, dict[str, object]]:
        hub = self.hub
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        match self.command, path:
            case "GET", ["api", "whoami-v2"]:
                user = self.user(must=True)
                orgs = [{"name": name} for name in user.get("orgs", [])]
                auth = {"type": "access_token", "accessToken": {"role": user["role"]}}
                return 200, {"type": "user", "name": user["name"], "orgs": orgs, "auth": auth}, {}
            case "POST", ["api", "repos", "create"]:
                asked, user = json.loads(body), self.user(must=True)
                owner = asked.get("organization") or user["name"]
                if user["role"] != "write" or owner not in [user["name"], *user.get("orgs", [])]:
                    raise Refusal(403, "", f"You don't have the rights to create a model under {owner}")
                name = f"{owner}/{asked['name']}"
                if name in hub.repositories:
                    return 409, {"error": "You already created this model repo", "url": f"{hub.url}/{name}"}, {}
                hub.create(name, asked.get("visibility") == "private" or bool(asked.get("private")))
                return 200, {"url": f"{hub.url}/{name}", "name": name, "id": name}, {}
            case "POST", ["api", "validate-yaml"]:
                return 200, {"errors": [], "warnings": []}, {}
            case "POST", ["api", "models", owner, name, "branch", branch]:
                found = self.repository(f"{owner}/{name}", write=True)
                if branch in found.branches:
                    raise Refusal(409, "", "Reference already exists")
                found.branches[branch] = found.branches["main"]
                return 200, {}, {}
            case "POST", ["api", "models", owner, name, "preupload", revision]:
                self.repository(f"{owner}/{name}", write=True).resolve(revision)
                paths = [file["path"] for file in json.loads(body)["files"]]
                modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
                files = [{"path": path, "shouldIgnore": False, "uploadMode": modes[path]} for path in paths]
                return 200, {"files": files}, {}
            case "POST", [owner, name, "info", "lfs", "objects", "batch"] if name.endswith(".git"):
                self.repository(f"{owner}/{name.removesuffix('.git')}", write=True)
                objects = json.loads(body)["objects"]
                for item in objects:
                    if item["oid"] not in hub.uploads:
                        item["actions"] = {"upload": {"href": f"{hub.url}/lfs/{item['oid']}"}}
                return 200, {"transfer": "basic", "objects": objects}, {"Content-Type": "application/vnd.git-lfs+json"}
            case "PUT", ["lfs", oid]:
                if hashlib.sha256(body).hexdigest() != oid:
                    raise Refusal(400, "", "The bytes are not those that were announced")
                hub.uploads[oid] = body
                return 200, {}, {}
            case "POST", ["api", "models", owner, name, "commit", branch]:
                name = f"{owner}/{name}"
                self.repository(name, write=True).resolve(branch)
                entries = [(entry["key"], entry["value"]) for entry in map(json.loads, body.splitlines())]
                if {key for key, _ in entries} - {"header", "file", "lfsFile"}:
                    raise Refusal(400, "", "an operation that is not part of this hub")
                files = {value["path"]: base64.b64decode(value["content"]) for key, value in entries if key == "file"}
                files |= {value["path"]: hub.uploads[value["oid"]] for key, value in entries if key == "lfsFile"}
                sha = hub.commit(name, branch, files)
                return 200, {"success": True, "commitOid": sha, "commitUrl": f"{hub.url}/{name}/commit/{sha}"}, {}
            case "GET", ["api", "models", owner, name, *rest] if rest[:1] in ([], ["revision"]):
                found = self.repository(f"{owner}/{name}")
                sha = found.resolve(rest[1] if rest else "main")
                siblings = [{"rfilename": file} for file in sorted(found.commits[sha])]
                info = {"_id": "0" * 24, "id": f"{owner}/{name}", "modelId": f"{owner}/{name}", "author": owner}
                info |= {"sha": sha, "private": found.private, "disabled": False, "gated": False, "tags": []}
                return 200, {**info, "downloads": 0, "likes": 0, "siblings": siblings}, {}
            case "GET", ["api", "models", owner, name, "tree", revision]:
                found = self.repository(f"{owner}/{name}")
                files = found.commits[found.resolve(revision)]
                return 200, [self.entry(file, data) for file, data in sorted(files.items())], {}
            case "GET" | "HEAD", [owner, name, "resolve", revision, *file]:
                found = self.repository(f"{owner}/{name}")
                sha = found.resolve(revision)
                if "/".join(file) not in found.commits[sha]:
                    raise Refusal(404, "EntryNotFound", "Entry not found")
                return self.part(found.commits[sha]["/".join(file)], sha)
        raise Refusal(404, "", f"{self.command} {self.path}: not part of this hub")

    def entry(self, path: str, data: bytes) -> dict[str, object]:
        found = {"type": "file", "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "path": path}
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return found | ({"lfs": lfs} if path.endswith(LARGE) else {})

    def part(self, data: bytes, sha: str) -> tuple[int, bytes, dict[str, object]]:
        """A file's bytes, or the rest after those that the client has."""
        etag = hashlib.sha256(data).hexdigest() if self.path.endswith(LARGE) else hashlib.sha1(data).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": sha, "Content-Type": "application/octet-stream"}
        headers |= {"Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not asked:
            return 200, data, headers
        start = int(asked[1])
        if start >= len(data):
            raise Refusal(416, "", "Requested range not satisfiable")
        return 206, data[start:], headers | {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
