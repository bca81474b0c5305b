import asyncio
import json
import re
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from support import call, refused, sentences
from support.cross_encoders import write_cross_encoder
from support.later import later
from support.models import edit_json
from support.served import served

from simcse_jax import CrossEncoder, SimCSE
from simcse_jax.commands import serve

openai = later("openai")

KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def model(prompted):
    return SimCSE(prompted)


@pytest.fixture(scope="module")
def index(model, tmp_path_factory):
    model.build_index(sentences(50))
    folder = tmp_path_factory.mktemp("index") / "i"
    model.save_index(folder)
    return folder


def test_a_mistake_is_reported_in_a_line_before_a_model_is_loaded(monkeypatch, prompted, index):
    for given, message in (
        ("--timeout 0", 'Invalid value "0.0" for --timeout. Must be >= 0.01.'),
        ("--host 0.0.0.0 --port 0", "set SIMCSE_JAX_API_KEY in the environment, or give --no-key"),
    ):
        refused(call("serve", "--model", "no/such/model", *given.split()), message)
    for key in ("", "a b"):
        monkeypatch.setenv("SIMCSE_JAX_API_KEY", key)
        refused(call("serve", "--model", "no/such/model"), "SIMCSE_JAX_API_KEY: must be printable ASCII")
    monkeypatch.delenv("SIMCSE_JAX_API_KEY")
    done = call("serve", "--model", prompted, "--index", index, "--port", "0", "--normalize")
    refused(done, "--normalize: changes the scores of an index that is compared by euclidean; leave it out")


@pytest.mark.parametrize("on_disk", [False, True])
def test_only_searches_in_memory_are_filled_up_to_few_sizes(monkeypatch, on_disk):
    asked = []
    index = SimpleNamespace(search=lambda queries, top_k: asked.append(len(queries)) or [[row[0]] for row in queries])
    model = SimpleNamespace(open_index=lambda folder: None, load_index=lambda folder: None, index=index)
    monkeypatch.setattr("simcse_jax.index.lance.is_lance_index", lambda folder: on_disk)
    search = serve.make_search(model, "folder")
    for number in (1, 3):
        assert search(np.arange(number * 2.0).reshape(number, 2), 8) == [[row * 2.0] for row in range(number)]
    assert asked == ([1, 3] if on_disk else [1, 16])


def test_the_command_serves_the_model_and_its_index(tiny_bert, tmp_path, monkeypatch):
    """Without a socket: the application that the command makes is asked in this process."""
    folder = shutil.copytree(tiny_bert, tmp_path / "short")
    edit_json(folder / "tokenizer_config.json", model_max_length=8)  # few programs
    model, texts = SimCSE(folder), [" ".join(text.split()[:4]) for text in sentences(9)]
    model.build_index(texts)
    model.save_index(tmp_path / "index")
    answers = []

    async def ask(application, said):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with (
            application._app.router.lifespan_context(application._app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            while (await client.get("/ready")).status_code != 200:
                await asyncio.sleep(0.05)
            answers.append(said)
            for path, body in (("embeddings", {"model": "short", "input": texts}), ("search", {"query": texts[2]})):
                answers.append((await client.post(f"/v1/{path}", json=body)).json()["data"])

    serves = lambda application, bound, seconds, said, *more: asyncio.run(ask(application, said))  # noqa: E731
    monkeypatch.setattr("simcse_jax.serving.server.serve", serves)
    done = call("serve", "--model", folder, "--index", tmp_path / "index", "--port", 0, "--batch-size", 8)
    assert done.returncode == 0 and "ready after" in done.stdout, done.stderr
    said, embeddings, found = answers
    assert said.startswith("short: http://127.0.0.1:") and "(this machine alone, no key)" in said
    np.testing.assert_allclose([one["embedding"] for one in embeddings], model.encode(texts), atol=1e-5)
    assert found[0]["results"][0].items() >= {"sentence": texts[2], "row": 2}.items()


@pytest.mark.slow
def test_the_server_gives_openai_s_client_what_the_class_gives(prompted, model, index, tmp_path):
    judge = write_cross_encoder(tmp_path / "judge")
    arguments = ["--model", prompted, "--index", index, "--rerank", judge, "--name", "mine", "--batch-size", "8"]
    with served(*arguments, SIMCSE_JAX_API_KEY=KEY) as server:
        assert f"mine: {server.url}/v1 (this machine alone, the key of SIMCSE_JAX_API_KEY)" in server.said[0]
        assert KEY not in "".join(server.said) and any(re.match(r"ready after \d+\.\d s$", one) for one in server.said)
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        texts = [*sentences(30), "the cat " * 25]
        found = client.embeddings.create(model="mine", input=texts)
        alone = np.stack([model.encode(text) for text in texts])
        np.testing.assert_allclose([one.embedding for one in found.data], alone, atol=1e-5)
        asked = {"prompt_name": "query"}
        (one,) = client.embeddings.create(model="mine", input=texts[0], dimensions=5, extra_body=asked).data
        right = model.encode(texts[0], prompt_name="query", truncate_dim=5, normalize_to_unit=True)
        np.testing.assert_allclose(one.embedding, right, atol=1e-5)
        with pytest.raises(openai.BadRequestError, match=r"has 8\d tokens; this model reads at most 64 tokens; "):
            client.embeddings.create(model="mine", input="the cat " * 40)
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="another").embeddings.create(model="mine", input="a")

        body = {"query": texts[:3], "top_k": 4}
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{server.url}/v1/search", json=body, headers=headers).json()
        for got, right in zip(answer["data"], model.search(texts[:3], 4), strict=True):
            assert [(one["sentence"], one["row"]) for one in got["results"]] == [one[:2] for one in right]
            scores = [one["score"] for one in got["results"]]
            np.testing.assert_allclose(scores, [one.score for one in right], atol=1e-5)

        body = {"query": "the red cat", "documents": texts[:20], "top_n": 5, "return_documents": True}
        answer = httpx.post(f"{server.url}/v1/rerank", json=body, headers=headers, timeout=60).json()
        expected = CrossEncoder(judge).rank("the red cat", texts[:20], top_k=5)
        assert [one["index"] for one in answer["results"]] == [one["corpus_id"] for one in expected]
        scores = [one["relevance_score"] for one in answer["results"]]
        np.testing.assert_allclose(scores, [one["score"] for one in expected], atol=1e-5)
        assert answer["results"][0]["document"]["text"] == texts[expected[0]["corpus_id"]]

        # In flight when SIGTERM comes: half of each has arrived.
        late, go_on = [], threading.Event()
        asks = [threading.Thread(target=lambda: late.append(ask_slowly(server.url, texts, go_on))) for _ in range(5)]
        for thread in asks:
            thread.start()
        with httpx.Client(headers={"Connection": "close"}) as again:
            while "simcse_requests_in_progress 6.0" not in again.get(f"{server.url}/metrics").text:
                time.sleep(0.05)
            server.process.send_signal(signal.SIGTERM)
            # Refused, or reset where the port was closed before it was accepted.
            with pytest.raises(httpx.TransportError):
                while again.get(f"{server.url}/health"):
                    time.sleep(0.05)
        go_on.set()
        for thread in asks:
            thread.join()
        for each in late:
            np.testing.assert_allclose([one["embedding"] for one in each], alone, atol=1e-5)
        assert len(late) == 5 and server.process.wait(timeout=30) == 0


def ask_slowly(url, texts, go_on):
    def content():
        body = json.dumps({"model": "mine", "input": texts}).encode()
        yield body[:100]
        assert go_on.wait(60)
        yield body[100:]

    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    return httpx.post(f"{url}/v1/embeddings", content=content(), headers=headers, timeout=60).json()["data"]


@pytest.mark.slow
def test_others_are_served_without_a_key_only_with_a_warning_and_ctrl_c_ends_it(tiny_bert):
    with served("--model", tiny_bert, "--host", "0.0.0.0", "--no-key", "--truncate") as server:
        said = "".join(server.said)
        assert "whoever can reach 0.0.0.0 can use the model" in said
        assert "(all who can reach this machine, no key)" in said
        address = re.sub("0.0.0.0", "127.0.0.1", server.url)
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert client.embeddings.create(model=tiny_bert.name, input="the cat " * 40).usage.prompt_tokens == 64
        rebound = {"Host": "evil.com"}  # a website's name, which it lets point here
        assert httpx.get(f"{address}/v1/models", headers=rebound).status_code == 403
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 130
