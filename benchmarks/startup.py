"""From the shell prompt to the first embedding, and to the first training step, of fresh processes, in turn.

    python -m benchmarks.startup [--what embedding step] [--rounds 3] [--output FILE]

Ours starts with an empty compilation cache (cold), and with one that an earlier process has filled (warm). A training
step is that of `python -m simcse_jax.main --config configs/unsup_bert.py`, reported when `metrics.jsonl` has its
loss; its evaluation is off. The peers are sentence-transformers' first embedding and the PyTorch loop's first
step. An uncounted first round puts the files into the system's cache. Memory is that of the largest process
started.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import fresh, side_by_side
from benchmarks.contender import Done, Round
from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from benchmarks.side_by_side import Contender
from benchmarks.step_options import SENTENCES
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

TARGETS = {"embedding": 1.5, "step": 4.0}  # seconds, of ours with a warm cache
OUTPUT = "output"  # the file with what a process prints


def started(command: list[str], sign: str, where: str, cache: str, cold: bool) -> Round:
    """A contender (see `benchmarks.contender`): a round starts the command and waits until a file has the sign.

    Args:
      command: the arguments of Python; `FOLDER` in them is replaced by a folder that is new each time.
      sign: a text that is there when the first one is done.
      where: the file in that folder; `OUTPUT` has what the command prints.
      cache: JAX's compilation cache: a folder.
      cold: whether it is emptied before each round.
    """
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache, "PYTHONUNBUFFERED": "1"}

    def do_round() -> Done:
        if cold:
            shutil.rmtree(cache, ignore_errors=True)
        with tempfile.TemporaryDirectory() as name, (Path(name) / OUTPUT).open("wb") as output:
            folder = Path(name)
            arguments = [part.replace("FOLDER", name) for part in command]
            before = time.perf_counter()
            process = subprocess.Popen([sys.executable, *arguments], stdout=output, stderr=output, env=environment)
            while not (there := (folder / where).exists() and sign in (folder / where).read_text(errors="replace")):
                if process.poll() is not None:
                    break
                time.sleep(0.002)
            seconds = time.perf_counter() - before
            if process.wait() or not there:
                last = (folder / OUTPUT).read_text(errors="replace").strip().splitlines()[-1:]
                raise RuntimeError(f"{' '.join(command[:3])} ended with code {process.returncode}: {last}")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return Done(1, {"peak_memory_of_process_mib": round(peak)}, seconds)

    do_round()
    return do_round


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.startup", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--data", default=SENTENCES, help="training sentences: .txt, or a .csv with sent0")
    parser.add_argument("--what", nargs="+", choices=tuple(TARGETS), default=list(TARGETS))
    parser.add_argument("--rounds", type=int, least=1, default=3)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    return parser.parse_args()


def commands(what: str, model: str, data: str) -> dict[str, tuple[list[str], str, str]]:
    """Ours and the peer's: the arguments of Python, the sign that the first one is done, and the file that has it."""
    from simcse_jax.huggingface.resolve import resolve

    def one(name: str, where: str) -> tuple[list[str], str, str]:
        return ["-m", "benchmarks.fresh", name, where, data], fresh.DONE, OUTPUT

    folder = str(resolve(model))
    if what == "embedding":
        return {"simcse_jax": one("our_embedding", model), "sentence-transformers": one("their_embedding", folder)}
    column = [] if Path(data).suffix == ".txt" else ["--config.data.columns.anchor=sent0"]
    run = ["-m", "simcse_jax.main", "--config=configs/unsup_bert.py", "--workdir=FOLDER/run"]
    run += [f"--config.model.init_from={model}", f"--config.data.train={data}", *column]
    run += ["--config.eval.data=", "--config.train.max_steps=1", "--config.train.log_every=1"]
    return {"simcse_jax": (run, '"loss"', "run/metrics.jsonl"), "PyTorch": one("pytorch_step", folder)}


def measure(what: str, args: argparse.Namespace) -> dict[str, Any]:
    """One table, printed, and its figures."""
    ours, peer = commands(what, args.model, args.data).items()
    names = ("command", "sign", "where", "cache", "cold")
    with tempfile.TemporaryDirectory() as folder:
        contenders = [
            Contender(name, "benchmarks.startup:started", dict(zip(names, (*each, cache, cold), strict=True)))
            for name, each, cache, cold in (
                (f"{ours[0]}, warm cache", ours[1], f"{folder}/warm", False),
                (f"{ours[0]}, cold cache", ours[1], f"{folder}/cold", True),
                (peer[0], peer[1], f"{folder}/peer", False),
            )
        ]
        comparison = side_by_side.compare(f"first {what}", "starts", contenders, args.rounds)
    for answers in comparison.rounds.values():  # of the started process, not of this one
        for answer in answers:
            answer["memory_mib"] = answer["notes"]["peak_memory_of_process_mib"]
    print(f"\n{side_by_side.table(comparison)}", flush=True)
    found = comparison.to_json()
    warm = found["contenders"].get(f"{ours[0]}, warm cache")
    if warm:
        seconds = warm["seconds"]
        print(f"  warm: {seconds['median']:.1f} s ({seconds['min']:.1f} to {seconds['max']:.1f});", end=" ")
        print(f"to reach: {TARGETS[what]} s", flush=True)
    return found


def main() -> None:
    """Prints a table for the embedding and one for the step."""
    args = parse()
    print(side_by_side.heading(), flush=True)
    side_by_side.report("startup", [measure(what, args) for what in args.what], args.output)


if __name__ == "__main__":
    run_command(main)
