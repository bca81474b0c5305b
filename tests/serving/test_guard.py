import asyncio
import hmac

from support.fake_server import play, played

from simcse_jax.serving import guard

BODY = {"model": "fake", "input": "a"}


def counted(server, path="/v1/embeddings"):
    found = {}
    for metric in server.app._metrics._requests.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total") and sample.labels["path"] == path:
                found[int(sample.labels["status"])] = sample.value
    return found


async def ask(server, receive, headers=(), path="/v1/embeddings"):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path}
    scope |= {"raw_path": path.encode(), "query_string": b"", "scheme": "http", "server": ("testserver", 80)}
    scope |= {"client": ("127.0.0.1", 1), "headers": [(b"host", b"testserver"), *headers], "root_path": ""}
    await server.guard(scope, receive, send)
    return sent


def test_a_key_is_asked_for_where_there_is_one_and_a_body_that_is_too_large_is_refused(monkeypatch):
    compared, same = [], hmac.compare_digest
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda *pair: compared.append(pair) or same(*pair))

    async def scene(server):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            for method, path in (("POST", "/v1/embeddings"), ("POST", "/v1/search"), ("GET", "/v1/models")):
                found = await server.client.request(method, path, json=BODY, headers=headers)
                assert found.status_code == 401 and found.json()["error"]["code"] == "invalid_api_key"
                assert found.headers["www-authenticate"] == "Bearer"
        for authorization in ("Bearer secret", "bearer  secret"):
            found = await server.client.post("/v1/embeddings", json=BODY, headers={"Authorization": authorization})
            assert found.status_code == 200
        for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json"):
            assert (await server.client.get(path)).status_code == 200
        assert server.encoder.batches == [["a"], ["a"]]

    play(scene, key="secret")
    assert (b"wrong", b"secret") in compared  # in constant time

    async def scene(server):
        for content in (b"x" * 2000, chunks(20)):
            found = await server.client.post("/v1/embeddings", content=content)
            assert (found.status_code, found.json()["error"]["code"]) == (413, "request_too_large")
            assert "1,000 bytes" in found.text
        found = await server.client.post("/v1/embeddings", json=BODY)
        assert found.status_code == 200 and counted(server) == {413: 2, 200: 1}

    async def chunks(count):
        for _ in range(count):
            yield b"x" * 100

    async def large(server):  # up to the limit
        content = {"model": "fake", "input": ["letters"] * 20}
        assert (await server.client.post("/v1/embeddings", json=content)).status_code == 200

    play(scene, body=1000)
    monkeypatch.setattr(guard, "UNREAD", 100)
    play(large, body=1000)


@played(names=["testserver"], requests=3)
async def test_another_name_of_this_machine_is_refused_and_requests_at_the_same_time_have_a_bound(server):
    for host in ("evil.example", "localhost.evil.example", "[::1", ""):
        found = await server.client.get("/health", headers={"Host": host})
        assert (found.status_code, "not a name of this server" in found.text) == (403, True), host
    for host in ("localhost", "LOCALHOST:8000", "[::1]:8000", "testserver"):
        assert (await server.client.get("/health", headers={"Host": host})).status_code == 200, host
    server.encoder.go_on.clear()
    first = [asyncio.create_task(server.client.post("/v1/embeddings", json=BODY)) for _ in range(3)]
    await asyncio.sleep(0.1)
    found = await server.client.post("/v1/embeddings", json=BODY)
    assert (found.status_code, found.headers["retry-after"]) == (429, "1")
    assert found.json()["error"]["code"] == "rate_limit_exceeded"
    assert (await server.client.get("/health")).status_code == 200  # a busy server is no dead one
    server.encoder.go_on.set()
    assert [(await each).status_code for each in first] == [200] * 3


async def upload(server, path, size, go_on):
    """Sends a body of blanks, whose last byte comes when `go_on` is set; the status."""
    parts = [b" " * (size - 1), b" "]

    async def receive():
        if len(parts) == 1:
            await go_on.wait()
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    return (await ask(server, receive, path=path))[0]["status"]


@played(body=100)
async def test_bodies_of_all_requests_together_have_a_bound(server):
    go_on, most = asyncio.Event(), server.guard._limits.bodies
    first = [asyncio.create_task(upload(server, "/v1/embeddings", 100, go_on)) for _ in range(most // 100)]
    await asyncio.sleep(0.1)
    assert server.guard._held == most - len(first)
    found = await server.client.post("/v1/embeddings", json=BODY)
    assert (found.status_code, found.headers["retry-after"]) == (429, "1") and "1,600 bytes" in found.text
    go_on.set()
    assert [await each for each in first] == [400] * len(first) and server.guard._held == 0
    assert (await server.client.post("/v1/embeddings", json=BODY)).status_code == 200


@played(key="secret", body=1000, requests=1)
async def test_without_the_key_nobody_fills_the_memory_or_takes_a_place_of_others(server):
    for path in ("/health", "/docs", "/nowhere", "/v1/embeddings"):
        go_on = asyncio.Event()
        asked = asyncio.create_task(upload(server, path, 1000, go_on))
        await asyncio.sleep(0.05)
        assert server.guard._held == 0
        go_on.set()
        assert await asked in (401, 404, 405)
    never = asyncio.Event()
    waiting = [asyncio.create_task(ask(server, never.wait)) for _ in range(2)]
    await asyncio.sleep(0.1)
    headers = {"Authorization": "Bearer secret"}
    assert (await server.client.post("/v1/embeddings", json=BODY, headers=headers)).status_code == 200
    for each in waiting:
        each.cancel()


@played(seconds=0.2)
async def test_a_body_that_does_not_come_and_an_answer_that_takes_too_long_are_given_up(server):
    sent = await ask(server, asyncio.Event().wait)
    assert sent[0]["status"] == 408 and b"no whole request in 0.2 s" in sent[1]["body"]
    server.encoder.go_on.clear()
    found = await asyncio.gather(*(server.client.post("/v1/embeddings", json=BODY) for _ in range(5)))
    assert [each.status_code for each in found] == [504] * 5 and "no answer in 0.2 s" in found[0].text
    assert found[0].json()["error"]["type"] == "server_error" and server.app._service.waiting == 0
    server.encoder.go_on.set()
    assert (await server.client.post("/v1/embeddings", json=BODY)).status_code == 200


@played()
async def test_a_client_that_hangs_up_takes_what_waits_along(server):
    server.encoder.go_on.clear()
    first = asyncio.create_task(server.client.post("/v1/embeddings", json={"model": "fake", "input": "first"}))
    await asyncio.sleep(0.1)
    body = b'{"model": "fake", "input": ["gone", "too"]}'
    messages, hung_up = [{"type": "http.request", "body": body, "more_body": False}], asyncio.Event()

    async def receive():
        if messages:
            return messages.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    gone = asyncio.create_task(ask(server, receive, [(b"content-type", b"application/json")]))
    await asyncio.sleep(0.1)
    assert server.app._service.waiting == 2
    hung_up.set()
    assert await gone == [] and server.app._service.waiting == 0
    server.encoder.go_on.set()
    assert (await first).status_code == 200
    assert server.encoder.batches == [["first"]] and counted(server) == {499: 1, 200: 1}
