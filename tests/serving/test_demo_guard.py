import asyncio

from simcse_jax.serving import demo_guard
from simcse_jax.serving.demo_guard import DemoGuard, HostNames, refusal

JOIN = "/gradio_api/queue/join"
LOCAL = HostNames("127.0.0.1")


def status(method="GET", path="/", names=LOCAL, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    refused = refusal(method, path, {"host": "localhost:7860"} | headers, names)
    return refused[0] if refused else 200


def test_local_names_own_pages_and_json_are_answered_other_names_sites_paths_and_bodies_refused():
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:7860", "[::1]:80", "[::1]"):
        assert status(host=host) == 200, host
    for host in (
        *("evil.com", "evil.com:7860", "localhost.evil.com", "127.0.0.1.evil.com", "evil.com@localhost", "localhost:x"),
        *("localhost/evil.com", "localhost.", "192.168.1.5", "0.0.0.0", "127.0.0.2", "", "[::1"),
    ):
        assert status(host=host) == status("POST", JOIN, host=host) == 403, host
    everywhere, shared = HostNames("0.0.0.0", ["gpu1.lab"]), HostNames("127.0.0.1")
    for host in ("10.0.0.7:1", "[fe80::1]", "GPU1.lab", "localhost"):
        assert status(host=host, names=everywhere) == 200, host
    assert status(host="evil.com", names=everywhere) == 403
    assert "--allow-host" in refusal("GET", "/", {"host": "evil.com"}, everywhere)[1]
    assert status(host="a.gradio.live", names=shared) == 403
    shared.add("a.gradio.live")
    assert (
        status(host="a.gradio.live", names=shared) == 200
        and status(host="[fe80::1]", names=HostNames("fe80::1")) == 200
    )
    for method, path in [
        *(("POST", f"/gradio_api/{name}") for name in ("upload", "upload/", "process_recording", "component_server")),
        *(("POST", name) for name in ("/login", "/upload", "/gradio_api/stream/x", "/", "/config")),
        *(("GET", f"/gradio_api/{name}") for name in ("file=/etc/passwd", "file//etc/passwd", "proxy=http://a.b/c")),
        *(("GET", name) for name in ("/monitoring", "/monitoring/summary", "/docs", "/openapi.json", "//config")),
        *(("GET", f"/gradio_api/{name}") for name in ("upload_progress", "queue/join", "vibe-code/", "runs")),
        *(("PUT", JOIN), ("DELETE", JOIN)),
    ]:
        assert status(method, path) == 403, (method, path)
    assert status("POST", JOIN, content_length=str(demo_guard.MOST_BYTES)) == 200
    for length in (str(demo_guard.MOST_BYTES + 1), "9" * 10**5, "-1", "x", ""):
        assert status("POST", JOIN, content_length=length) == 413
    assert status("POST", JOIN, transfer_encoding="chunked") == 413
    assert status("POST", JOIN, origin="http://localhost:7860") == 200
    for origin in ("http://evil.com", "null", "http://localhost:3000", "http://localhost", ""):
        assert status("POST", JOIN, origin=origin) == 403, origin
        assert status("GET", "/config", origin=origin) == 403, origin
    assert status("POST", JOIN, sec_fetch_site="same-origin") == 200
    for site in ("cross-site", "same-site"):
        assert status("POST", JOIN, sec_fetch_site=site) == 403
        assert status("POST", JOIN, sec_fetch_site=site, sec_fetch_dest="document") == 403  # a form
        assert status("GET", "/config", sec_fetch_site=site, sec_fetch_dest="image") == 403
        assert status("GET", "/", sec_fetch_site=site, sec_fetch_dest="iframe") == 403
        assert status("GET", "/", sec_fetch_site=site, sec_fetch_dest="document") == 200  # a link
    names = HostNames("127.0.0.1", ["gpu1.lab"])
    for origin, expected in {"https://gpu1.lab": 200, "https://evil.com": 403, "http://localhost:3000": 403}.items():
        assert status("POST", JOIN, names, origin=origin, host="127.0.0.1:7860") == expected
    assert status("POST", JOIN, names, origin="http://gpu1.lab:8080", host="gpu1.lab") == 403
    assert status("POST", JOIN, origin="https://gpu1.lab", host="127.0.0.1:7860") == 403
    assert status("POST", JOIN, origin="http://[::1") == 403  # no valid address
    for body in (b'{"data": ["a", 2], "event_data": {"index": [0]}, "trigger_id": 7}', b""):
        assert demo_guard.body_refusal(body) is None
    for body, says in (
        (b'{"data": [{"path": "http://a.b/c", "meta": {"_type": "gradio.FileData"}}]}', "it has a file"),
        (b'{"query": {"p\\u0061th": "/etc/passwd"}}', "it has a file"), (b"[" * 10**5, "recursion"),
        (b"no", "Expecting value"), (b"\xff\xfe\xfd", "codec"),
    ):  # fmt: skip
        code, text = demo_guard.body_refusal(body)
        assert code == 400 and says in text
    bodies = ((b'{"data"', True), (b": []}", False))
    parts = [{"type": "http.request", "body": body, "more_body": more} for body, more in bodies]
    parts += [{"type": "http.disconnect"}]
    seen = []

    async def app(scope, receive, send):
        seen.extend([await receive(), await receive()])

    async def receive():
        return parts.pop(0)

    headers = [(b"host", b"localhost"), (b"content-length", b"12")]
    asyncio.run(
        DemoGuard(app, LOCAL)({"type": "http", "method": "POST", "path": JOIN, "headers": headers}, receive, None)
    )
    assert seen == [{"type": "http.request", "body": b'{"data": []}', "more_body": False}, {"type": "http.disconnect"}]
    assert ask("http", (b"Host", b"localhost")) == ["the page"] and ask("lifespan") == ["the page"]
    start, body = ask("http", (b"host", b"evil\xff.com"))
    assert start["status"] == 403 and body["body"].startswith(b"refused: this page answers to 127.0.0.1, ::1, local")
    assert ask("websocket", (b"host", b"localhost")) == [{"type": "websocket.close", "code": 1008}]


def ask(kind, *headers):
    sent = []

    async def app(scope, receive, send):
        sent.append("the page")

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "method": "GET", "path": "/", "headers": list(headers)}
    asyncio.run(DemoGuard(app, LOCAL)(scope, None, send))
    return sent
