"""The server under load: many clients at a time, next to `encode` on the same sentences, and sentence-transformers.

    python -m benchmarks.serve [--data FILE] [--clients 64] [--seconds 60] [--texts 1 32] [--output FILE]

Each client sends its next request as soon as it has the answer to the one before, over a connection that stays. Every
answer is checked: its status, and the number of its embeddings. Sentence-transformers stands behind the same server:
the same queue and HTTP, with its own tokenizer and model, 32 texts a batch. `encode` runs before, alone on the machine;
the clients share the machine with the server.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np

from benchmarks import machine, side_by_side
from benchmarks.encode import sentences_of
from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from benchmarks.side_by_side import ROOT
from benchmarks.step_options import SENTENCES
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_file

OURS, THEIRS = "simcse_jax", "sentence-transformers"
SERVERS = {OURS: ("simcse_jax", "serve"), THEIRS: ("benchmarks.serve_peer",)}
ROWS = 2000  # distinct sentences
UNFINISHED = 60  # seconds that the last answers may take


class Answer(NamedTuple):
    """What came back for a request."""

    seconds: float
    good: bool


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.serve", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--data", default=SENTENCES, help="a file of sentences or of pairs")
    parser.add_argument("--column", help="of a table")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load, for each server and size of a request")
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 32], help="in a request")
    parser.add_argument("--servers", nargs="+", choices=tuple(SERVERS), default=list(SERVERS))
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    for name in ("clients", "seconds"):
        if not 0 < getattr(args, name) <= 10_000:
            raise UserError(f"--{name} {getattr(args, name)}: must be above 0 and at most 10,000")
    if not all(1 <= texts <= 2048 for texts in args.texts):
        raise UserError(f"--texts {' '.join(map(str, args.texts))}: each must be from 1 to 2048")
    return args


def main() -> None:
    """Prints a table."""
    args = parse()
    sentences = sentences_of(args.data, args.column, ROWS)
    rate = encode_rate(args.model, sentences)
    print(f"{machine.cpu()}, {machine.cores()} cores; encode alone: {rate:,.0f} sentences/s\n")
    print("| server | texts a request | requests | lost | texts/s | of encode | p50 ms | p99 ms |", flush=True)
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    found = []
    for server in args.servers:
        with served(SERVERS[server], args.model) as url:
            for texts in args.texts:
                bodies = requests(sentences, texts, model_of(url))
                asyncio.run(load(url, bodies, texts, args.clients, min(3.0, args.seconds)))  # warm
                started = time.perf_counter()
                answers = asyncio.run(load(url, bodies, texts, args.clients, args.seconds))
                seconds = time.perf_counter() - started  # with the last answers, which came later
                found.append({"server": server, "texts": texts} | figures(answers, texts, rate, seconds))
                print(row(found[-1]), flush=True)
    side_by_side.report("serve", found, args.output)


def encode_rate(model: str, sentences: Sequence[str]) -> float:
    """Sentences a second of `SimCSE.encode`, in a process of its own: the median of three rounds after a first one."""
    code = f"""
import json, statistics, sys, time
from simcse_jax import SimCSE
model, sentences, rounds = SimCSE({model!r}), json.load(sys.stdin), []
for _ in range(4):
    started = time.perf_counter()
    model.encode(sentences)
    rounds.append(len(sentences) / (time.perf_counter() - started))
print(statistics.median(rounds[1:]))
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, input=json.dumps(list(sentences)), cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"--model {model}: encode failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


@contextmanager
def served(server: tuple[str, ...], model: str) -> Iterator[str]:
    """The address of a server that is ready; it ends after the block.

    Raises:
      UserError: when it does not start.
    """
    command = [sys.executable, "-m", *server, "--model", model, "--port", "0", "--truncate"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = next((word for word in process.stdout.readline().split() if word.startswith("http")), None)
            if url is None:
                raise UserError(f"{' '.join(server)} did not start")
            url = url.removesuffix("/v1")
            while b'"ready":true' not in urlopen(f"{url}/health").read():
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()


def model_of(url: str) -> str:
    """The name of the model that is served."""
    return json.load(urlopen(f"{url}/v1/models"))["data"][0]["id"]


def requests(sentences: Sequence[str], texts: int, model: str) -> list[bytes]:
    """Requests that hold all sentences, so many each."""
    found = []
    for start in range(0, len(sentences), texts):
        part = [sentences[(start + place) % len(sentences)] or "a" for place in range(texts)]
        body = json.dumps({"model": model, "input": part, "encoding_format": "base64"}).encode()
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def load(url: str, bodies: Sequence[bytes], texts: int, clients: int, seconds: float) -> list[Answer]:
    """The answers to all requests that were sent within so many seconds.

    Raises:
      UserError: when nothing listens there any more.
    """
    split = urlsplit(url)
    end, following, answers = time.perf_counter() + seconds, itertools.cycle(bodies), []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection(split.hostname, split.port)
        except OSError as error:
            raise UserError(
                f"{url}: the server has ended ({error.strerror or error}); see what it said above"
            ) from None

    async def client() -> None:
        reader, writer = await connect()
        while time.perf_counter() < end:
            started = time.perf_counter()
            try:
                writer.write(next(following))
                async with asyncio.timeout(UNFINISHED):
                    good = await read_answer(reader, texts)
            except (OSError, EOFError, TimeoutError):
                answers.append(Answer(time.perf_counter() - started, False))
                reader, writer = await connect()
            else:
                answers.append(Answer(time.perf_counter() - started, good))
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return answers


async def read_answer(reader: asyncio.StreamReader, texts: int) -> bool:
    """Whether an answer has so many embeddings."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    return head.startswith(b"http/1.1 200") and body.count(b'"embedding":') == texts


def figures(answers: Sequence[Answer], texts: int, rate: float, seconds: float) -> dict[str, Any]:
    """Counts, throughput and times; `rate` is that of `encode`."""
    times = np.array([answer.seconds for answer in answers if answer.good]) * 1e3
    throughput = len(times) * texts / seconds
    found = {"requests": len(answers), "lost": len(answers) - len(times), "texts_per_second": throughput}
    p50, p99 = np.percentile(times, [50, 99]) if len(times) else (float("nan"),) * 2
    return found | {"of_encode": throughput / rate, "p50_ms": float(p50), "p99_ms": float(p99)}


def row(found: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [found["server"], found["texts"], f"{found['requests']:,}", found["lost"]]
    cells += [f"{found['texts_per_second']:,.0f}", f"{found['of_encode']:.2f}"]
    cells += [f"{found['p50_ms']:,.0f}", f"{found['p99_ms']:,.0f}"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    run_command(main)
