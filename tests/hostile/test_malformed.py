"""Malformed requests to a real server: each gets its 4xx, while good ones are answered as ever.

`REQUESTS=10000 SEED=7` in the environment sends others, and more.
"""

import itertools
import json
import os
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from hostile.malformed import Bad, draw
from support.served import served

from simcse_jax import SimCSE


def answer(address: tuple[str, int], bad: Bad) -> tuple[int | None, bytes]:
    """The status, None for none, and the body."""
    with socket.create_connection(address, timeout=60) as connection:
        received = b""
        try:
            connection.sendall(bad.sent)
            if bad.may_hang_up:  # otherwise the server would wait for the rest
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(2**16):
                received += part
        except ConnectionError:
            pass
    head, _, body = received.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else None), body


@pytest.mark.hostile
def test_each_malformed_request_has_its_answer_and_disturbs_no_other(prompted):
    count, seed = int(os.environ.get("REQUESTS", "300")), os.environ.get("SEED") or str(random.randrange(10**6))
    print(f"seed {seed}")
    right = SimCSE(prompted).encode(["the cat"])[0]
    done, faults, answered = threading.Event(), [], []
    with served("--model", prompted, "--max-body", "1", "--max-inputs", "16") as server:
        address = (urlsplit(server.url).hostname, urlsplit(server.url).port)

        def ask() -> None:
            body = {"model": prompted.name, "input": "the cat"}
            with httpx.Client() as client:
                while not done.is_set():
                    found = client.post(f"{server.url}/v1/embeddings", json=body)
                    one = found.json()["data"][0]["embedding"] if found.status_code == 200 else np.nan
                    answered.append(np.allclose(one, right, atol=1e-5))

        def send(bad: Bad) -> None:
            status, body = answer(address, bad)
            if status is None and bad.may_hang_up:
                return
            is_error = status in bad.statuses and (bad.may_hang_up or "message" in json.loads(body)["error"])
            if not is_error:
                faults.append((status, bad.sent[:300], body[:300]))

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(send, itertools.islice(draw(seed, prompted.name), count)))
        done.set()
        for thread in asking:
            thread.join()
        assert httpx.get(f"{server.url}/health").status_code == 200
        figures = httpx.get(f"{server.url}/metrics").text
        assert "simcse_requests_in_progress 1.0" in figures and "simcse_waiting_texts 0.0" in figures
    print(f"{count} malformed requests, {len(answered)} good ones next to them")
    assert not faults, faults[:5]
    assert answered and all(answered)
