import asyncio
import base64

import httpx
import numpy as np
import pytest
from support.fake_server import FakeEncoder, FakeReranker, play, played
from support.later import later

from simcse_jax.index.index import Result
from simcse_jax.serving.app import App
from simcse_jax.serving.prometheus import Metrics
from simcse_jax.serving.service import Limits, Service

openai = later("openai")

GOOD = {"model": "fake", "input": "a"}
# What is wrong, and the field that the answer names.
MISTAKES = [
    *((body, None) for body in (b"", b"{", b"[]", b"\xff\xfe{}", b"[" * 100_000)), (b'{"input": "a"}', "model"),
    (b'{"model": "fake"}', "input"), ({**GOOD, "model": "other"}, "model"),
    (b'{"model": "\\ud800", "input": "a"}', "model"), ({**GOOD, "input": ["a"] * 9}, "input"),
    ({**GOOD, "input": "a" * 17}, "input"), ({**GOOD, "dimensions": 5}, "dimensions"),
    ({**GOOD, "encoding_format": "int8"}, "encoding_format"), ({**GOOD, "prompt_name": "none"}, "prompt_name"),
    ({**GOOD, "inptu": "a"}, "inptu"),
]  # fmt: skip
SEARCHES = [({}, "query"), ({"query": "a", "top_k": 10**6}, "top_k"), ({"query": "a", "model": "other"}, "model")]
RERANKED = {"query": "ab", "documents": ["a"]}
RERANKINGS = [
    ({}, "query"), ({**RERANKED, "documents": ["a" * 14]}, "documents"), ({**RERANKED, "query": "a" * 15}, "documents"),
    ({**RERANKED, "max_tokens_per_doc": 0}, "max_tokens_per_doc"), ({**RERANKED, "model": "fake"}, "model"),
    ({**RERANKED, "rank_fields": ["text"]}, "rank_fields"),
]  # fmt: skip


def find(queries, top_k):
    return [[Result(f"near {query[0]:.3f}", row, 1 - row / 4) for row in range(4)][:top_k] for query in queries]


@played()
async def test_openai_s_client_gets_what_the_encoder_gives(server):
    http = httpx.AsyncClient(transport=server.client._transport)
    client = openai.AsyncOpenAI(base_url="http://testserver/v1", api_key="none", http_client=http)
    texts = ["a", "bb", "a longer text"]
    right = np.stack([server.encoder.alone(text) for text in texts])
    for form in (openai.NOT_GIVEN, "float", "base64"):  # without one the client asks for base64
        found = await client.embeddings.create(model="fake", input=texts, encoding_format=form)
        rows = [
            np.frombuffer(base64.b64decode(one.embedding), "<f4") if form == "base64" else one.embedding
            for one in found.data
        ]
        np.testing.assert_array_equal(np.array(rows, np.float32), right)
        assert [one.index for one in found.data] == [0, 1, 2] and found.model == "fake"
        assert found.usage.prompt_tokens == found.usage.total_tokens == 16
    one = await client.embeddings.create(model="fake", input="bb", dimensions=2, user="me")
    np.testing.assert_allclose(one.data[0].embedding, right[1, :2] / np.linalg.norm(right[1, :2]), atol=1e-6)
    whole = await client.embeddings.create(model="fake", input="bb", dimensions=4)
    assert np.linalg.norm(whole.data[0].embedding) == pytest.approx(1)
    assert [model.id for model in (await client.models.list()).data] == ["fake"]
    assert (await client.models.retrieve("fake")).owned_by == "simcse_jax"
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        await client.embeddings.create(model="gpt", input="a")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.embeddings.create(model="fake", input="a", dimensions=5)
    assert refused.value.param == "dimensions"


def test_each_mistake_has_its_answer_while_good_requests_search_and_reranking_go_on():
    async def scene(server):
        good = [asyncio.create_task(server.client.post("/v1/embeddings", json=GOOD)) for _ in range(20)]
        wrong = [("embeddings", *each) for each in MISTAKES] + [("search", *each) for each in SEARCHES]
        for path, body, param in wrong:
            sent = {"content": body} if isinstance(body, bytes) else {"json": body}
            headers = {"Content-Type": "application/json"}
            found = await server.client.post(f"/v1/{path}", headers=headers, **sent)
            about = found.json()["error"]
            assert found.status_code == (404 if about["code"] == "model_not_found" else 400), (body, found.text)
            assert about["param"] == param and about["type"] == "invalid_request_error", (body, about)
            assert len(about["message"]) < 300 and "pydantic" not in found.text
        right = pytest.approx(server.encoder.alone("a").tolist())
        for each in await asyncio.gather(*good):
            assert each.status_code == 200 and each.json()["data"][0]["embedding"] == right

    play(scene, search=find, inputs=8)

    async def scene(server):
        found = (await server.client.post("/v1/search", json={"query": ["a", "bb"], "top_k": 2})).json()
        assert [each["index"] for each in found["data"]] == [0, 1] and found["usage"]["total_tokens"] == 3
        first = f"near {server.encoder.alone('a')[0]:.3f}"
        expected = [{"row": row, "score": score, "sentence": first} for row, score in ((0, 1.0), (1, 0.75))]
        assert found["data"][0]["results"] == expected
        least = (await server.client.post("/v1/search", json={"query": "a", "threshold": 0.75})).json()
        assert [one["row"] for one in least["data"][0]["results"]] == [0, 1]

    async def without(server):
        for path, body, code in (("search", {"query": "a"}, "no_index"), ("rerank", RERANKED, "no_reranker")):
            found = await server.client.post(f"/v1/{path}", json=body)
            assert (found.status_code, found.json()["error"]["code"]) == (404, code)

    play(scene, search=find)
    play(without)
    documents, texts = ["x a", "aab", {"text": "b a"}, "zz"], ["x a", "aab", "b a", "zz"]

    async def scene(server):
        async def ask(**more):
            answer = await server.client.post("/v1/rerank", json={"query": "ab", "documents": documents, **more})
            return answer.status_code, answer.json()

        status, found = await ask()
        assert (status, found["model"], found["usage"]["total_tokens"]) == (200, "judge", sum(map(len, texts)) + 4 * 3)
        ranked = ((1, 3.0), (2, 2.0), (0, 1.0), (3, 0.0))  # of equal ones the earlier first
        assert found["results"] == [{"index": row, "relevance_score": score} for row, score in ranked]
        _, found = await ask(max_tokens_per_doc=2, top_n=1)
        assert found["results"] == [{"index": 1, "relevance_score": 2.0}]  # of "aa"
        _, found = await ask(top_n=2, return_documents=True, model="judge")
        assert [one["document"]["text"] for one in found["results"]] == ["aab", "b a"]
        assert [one["id"] for one in (await server.client.get("/v1/models")).json()["data"]] == ["fake", "judge"]
        assert (await server.client.get("/v1/models/judge")).json()["id"] == "judge"
        assert (await server.client.post("/v1/embeddings", json={"model": "judge", "input": "a"})).status_code == 404
        figures = (await server.client.get("/metrics")).text
        assert 'simcse_texts_total{kind="pairs"} 12.0' in figures and 'kind="texts"' not in figures
        for body, field in RERANKINGS:
            answer = await server.client.post("/v1/rerank", json=body)
            assert answer.status_code in (400, 404) and answer.json()["error"]["param"] == field, (body, answer.text)

    play(scene, reranker=FakeReranker(), inputs=8)


def test_requests_are_answered_once_all_is_compiled_and_an_error_is_that_of_its_request(capfd):
    class Slow(FakeEncoder):
        def warm(self, shape):
            assert self.go_on.wait(20)
            super().warm(shape)

    async def scene(server):
        assert (await server.client.get("/health")).json() == {"status": "ok", "ready": False}
        for found in (await server.client.get("/ready"), await server.client.post("/v1/embeddings", json=GOOD)):
            assert (found.status_code, found.headers["retry-after"]) == (503, "5")
        assert "simcse_ready 0.0" in (await server.client.get("/metrics")).text
        server.encoder.go_on.set()
        while (await server.client.get("/ready")).status_code == 503:
            await asyncio.sleep(0.01)
        assert server.encoder.warmed == server.encoder.shapes()
        assert (await server.client.post("/v1/embeddings", json=GOOD)).status_code == 200

    slow = Slow()
    slow.go_on.clear()
    play(scene, encoder=slow, wait=False)

    def say():
        raise BrokenPipeError

    async def scene():
        app = App(Service("fake", {None: FakeEncoder()}, Limits()), Metrics(), say, "http://127.0.0.1:8123")
        assert 'base_url="http://127.0.0.1:8123/v1"' in app.asgi.openapi()["info"]["description"]
        await app._warm()
        assert app.ready and app.failure is None

    asyncio.run(scene())

    async def scene(server):
        for text in ("fails", "damaged"):
            found = await server.client.post("/v1/embeddings", json={**GOOD, "input": text})
            assert (found.status_code, found.json()["error"]["type"]) == (500, "server_error")
            assert "encoder failed" not in found.text and "finite" not in found.text  # the log has it
        assert (await server.client.post("/v1/embeddings", json=GOOD)).status_code == 200

    play(scene)


@played(waiting=3)
async def test_a_full_queue_answers_429_with_the_time_to_try_again(server):
    server.encoder.go_on.clear()
    first = asyncio.create_task(server.client.post("/v1/embeddings", json={**GOOD, "input": ["a", "b", "c"]}))
    await asyncio.sleep(0.1)
    found = await server.client.post("/v1/embeddings", json={**GOOD, "input": ["d", "e", "f", "g"]})
    assert found.status_code == 429 and int(found.headers["retry-after"]) >= 1
    assert found.json()["error"]["type"] == "rate_limit_error"
    server.encoder.go_on.set()
    assert (await first).status_code == 200


@played()
async def test_figures_a_description_of_every_path_and_refusals_of_other_sites_paths_and_methods(server):
    await server.client.post("/v1/embeddings", json={**GOOD, "input": ["a", "bb"]})
    await server.client.post("/v1/embeddings", json={})
    await server.client.get("/a/path/of/which/there/are/many")
    lines = (await server.client.get("/metrics")).text.splitlines()
    kinds = {"texts": 2, "tokens": 3, "computed_tokens": 16}  # a batch of two rows of 8
    requests = {("/v1/embeddings", 200), ("/v1/embeddings", 400), ("other", 404)}
    assert {
        *(f'simcse_requests_total{{path="{path}",status="{status}"}} 1.0' for path, status in requests),
        *(f'simcse_{name}_total{{kind="texts"}} {count}.0' for name, count in kinds.items()),
        *("simcse_ready 1.0", "simcse_waiting_texts 0.0", "simcse_requests_in_progress 1.0"),
        'simcse_request_seconds_count{path="/v1/embeddings"} 2.0',
    } <= {*lines}
    found = (await server.client.get("/openapi.json")).json()
    paths = {"/v1/embeddings", "/v1/search", "/v1/rerank", "/v1/models", "/v1/models/{name}"}
    assert set(found["paths"]) == paths | {"/health", "/ready", "/metrics"}
    fields = found["components"]["schemas"]["EmbeddingsRequest"]["properties"]
    assert set(fields) == {"input", "model", "encoding_format", "dimensions", "prompt_name", "user"}
    assert {kind.get("type") for kind in fields["input"]["anyOf"]} == {"string", "array"}
    assert "422" not in found["paths"]["/v1/embeddings"]["post"]["responses"]
    page = (await server.client.get("/docs")).text
    assert "/openapi.json" in page
    found = await server.client.post("/v1/embeddings", content=b'{"model": "fake", "input": "a"}')  # no type
    assert found.status_code == 400 and "Content-Type: application/json" in found.text
    plain = {"Content-Type": "text/plain"}  # what a page may send without asking the server first
    found = await server.client.post("/v1/embeddings", content=b'{"model": "fake", "input": "a"}', headers=plain)
    assert found.status_code == 400 and "access-control-allow-origin" not in found.headers
    assert (await server.client.options("/v1/embeddings")).status_code == 405
    requests = {"GET /nowhere": 404, "POST /v1/embeddings/": 404, "GET /v1/models/other/one": 404}
    requests |= {"GET /v1/embeddings": 405, "POST /health": 405, "HEAD /health": 200}
    for request, status in requests.items():
        found = await server.client.request(*request.split())
        assert found.status_code == status, request
        assert status == 200 or found.json()["error"]["message"]
