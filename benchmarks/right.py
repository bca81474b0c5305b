"""Is an accelerator right? Losses of 20 steps, a killed run and embeddings, compared with a CPU's record.

    JAX_PLATFORMS=cpu python -m benchmarks.right RECORD --data SENTENCES.txt --model START
    python -m benchmarks.right FOLDER --data SENTENCES.txt --model START --recorded RECORD [--together 8]

The first command records unsupervised SimCSE, SimCSE++ and DiffCSE on a small encoder, in float32 and in bfloat16, and
the embeddings of START; the second does the same where it runs and compares. It also trains twice with the same seed,
with and without `--xla_gpu_deterministic_ops`, and once more with that flag, killed after step 10 and resumed. Every
run is a command as a user gives it.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

SYSTEMS = ("unsup_bert", "simcse_plus_plus", "diffcse")
BOUNDS = {"float32": 1e-4, "bfloat16": 2e-2}  # of a loss
EMBEDDING = 1e-5  # of an element
STEPS, KILLED_AFTER, SENTENCES = 20, 10, 500
DETERMINISTIC = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.right", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="for the runs; they are not run again")
    parser.add_argument("--data", type=Path, required=True, help="sentences, one a line")
    parser.add_argument(
        "--model", required=True, help="whose tokenizer the small encoder has, and that is encoded with"
    )
    parser.add_argument("--recorded", type=Path, help="the folder of a CPU's record (default: this is to be one)")
    parser.add_argument("--together", type=int, least=1, default=2, help="runs at a time")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    return parser.parse_args()


def main() -> None:
    """Runs, compares, and prints a line for each comparison."""
    args = parse()
    args.folder.mkdir(parents=True, exist_ok=True)
    for kind in ("small", "small_generator"):
        if not (args.folder / kind / "config.json").exists():
            write = [sys.executable, "-m", "benchmarks.random_models", kind, args.folder / kind, args.model]
            subprocess.run(write, check=True)

    jobs = {f"{system}_{dtype}": (system, dtype, {}) for system in SYSTEMS for dtype in BOUNDS}
    later: dict[str, tuple[str, str, Mapping[str, str]]] = {}  # whose programs the others have compiled
    for dtype in BOUNDS if args.recorded else ():
        later[f"again_{dtype}"] = ("unsup_bert", dtype, {})
        for name, wave in (("first", jobs), ("second", later), ("killed", later)):
            wave[f"{name}_{dtype}"] = ("unsup_bert", dtype, DETERMINISTIC)
    with concurrent.futures.ThreadPoolExecutor(args.together) as pool:
        encoding = pool.submit(encode, args)
        for wave in (jobs, later):
            for each in [pool.submit(run, args, name, *job) for name, job in wave.items()]:
                each.result()
        encoding.result()
    print(side_by_side.heading(), flush=True)
    rows = compare(args) if args.recorded else []
    print("\n".join([*(["| | largest difference | bound | |", "| --- " * 4 + "|"] if rows else []), *map(line, rows)]))
    side_by_side.report("right", rows, args.output)


def run(args: argparse.Namespace, name: str, system: str, dtype: str, environment: Mapping[str, str]) -> None:
    """Trains; a run whose name begins with "killed" is killed once, and then resumes."""
    command = [sys.executable, "-m", "simcse_jax.main", "--config", f"configs/{system}.py"]
    fields = {
        "model.init_from": args.folder / "small",
        "data.train": args.data,
        "train.dtype": dtype,
        "train.max_steps": STEPS,
        "train.log_every": 1,
        "eval.every": 5,
        "eval.data": "",
        "parallel.devices": 1,
    }
    if system == "diffcse":
        fields["model.generator"] = args.folder / "small_generator"
    command += [f"--workdir={args.folder / name}", *(f"--config.{field}={value}" for field, value in fields.items())]
    given = side_by_side.DEFAULTS | dict(os.environ)
    flags = " ".join(filter(None, [given.get("XLA_FLAGS"), environment.get("XLA_FLAGS")]))
    given |= environment | ({"XLA_FLAGS": flags} if flags else {})
    if name.startswith("killed") and not (args.folder / name / "metrics.jsonl").exists():
        process = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and max(losses(args.folder / name), default=0) < KILLED_AFTER:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        reached = max(losses(args.folder / name), default=0)
        if not KILLED_AFTER <= reached < STEPS:
            shutil.rmtree(args.folder / name, ignore_errors=True)
            raise RuntimeError(f"{name}: was killed at step {reached}, not at {KILLED_AFTER} to {STEPS - 1}")
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")


def losses(workdir: Path) -> dict[int, float]:
    """The losses of a run's steps so far."""
    found = {}
    path = workdir / "metrics.jsonl"
    for each in path.read_text().splitlines() if path.exists() else ():
        if each.endswith("}") and "loss" in (values := json.loads(each)):
            found[values["step"]] = values["loss"]
    return found


def encode(args: argparse.Namespace) -> None:
    """Embeddings of the first sentences, in float32, by a command of its own."""
    (args.folder / "few.txt").write_text("\n".join(args.data.read_text().splitlines()[:SENTENCES]) + "\n")
    target = args.folder / "embeddings.npy"
    command = [sys.executable, "-m", "simcse_jax", "encode", "--model", args.model, "--output", target]
    command += ["--data", args.folder / "few.txt"]
    done = subprocess.run(command, env=side_by_side.DEFAULTS | os.environ, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"encode: exit code {done.returncode}: {done.stderr.strip()[-500:]}")


def parameters(workdir: Path) -> list[np.ndarray]:
    """Of a run's last checkpoint."""
    import jax

    from simcse_jax.runs.loading import load_model

    return [np.asarray(each) for each in jax.tree.leaves(load_model(f"{workdir}@step=last").params)]


def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """What differs from the record, from run to run, and after a kill."""
    import jax

    rows, device = [], jax.devices()[0].device_kind

    def row(what: str, difference: float, bound: float | None) -> None:
        figures = [(what, difference, "difference")]
        rows.append({"what": what, "difference": difference, "bound": bound, "device": device, "figures": figures})

    for system in SYSTEMS:
        for dtype, bound in BOUNDS.items():
            name = f"{system}_{dtype}"
            ours, theirs = losses(args.folder / name), losses(args.recorded / name)
            assert len(ours) == len(theirs) == STEPS, (name, len(ours), len(theirs))
            what = f"losses of {STEPS} steps, {max(theirs.values()):.3g} at most, {system}, {dtype}"
            row(what, max(abs(ours[n] - theirs[n]) for n in ours), bound)
    for dtype in BOUNDS:
        for first, second, what, bound in (
            ("unsup_bert", "again", "parameters after the same run twice", None),
            ("first", "second", "the same with the deterministic flag", 0.0),
            ("first", "killed", "with the flag, killed and resumed", 0.0),
        ):
            pairs = zip(*(parameters(args.folder / f"{each}_{dtype}") for each in (first, second)), strict=True)
            row(f"{what}, {dtype}", max(float(np.abs(a - b).max()) for a, b in pairs), bound)
    embeddings = [np.load(folder / "embeddings.npy") for folder in (args.folder, args.recorded)]
    row(f"embeddings of {SENTENCES} sentences, float32", float(np.abs(embeddings[0] - embeddings[1]).max()), EMBEDDING)
    return rows


def line(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    bound = row["bound"]
    verdict = "" if bound is None else "yes" if row["difference"] <= bound else "NO"
    return f"| {row['what']} | {row['difference']:.3g} | {'' if bound is None else f'{bound:g}'} | {verdict} |"


if __name__ == "__main__":
    run_command(main)
