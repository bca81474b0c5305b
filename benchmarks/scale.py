"""How a training step's time and memory grow with the batch, the number of layers, the length and the devices.

    python -m benchmarks.scale [--axes batch layers length devices] [--largest 16384] [--seconds 600] [--output FOLDER]

Unsupervised SimCSE, float32 (or `--dtype`), each point in a process of its own: a step that compiles, and `--steps`
that are timed. Batches are encoded in chunks of 64 examples. Along the batch and the devices the model has
`--num-layers` layers; batch, layers and devices have real sentences of at most 32 tokens, along the length sentences
are strung together until none is shorter than that. On a CPU devices are virtual: more of them are no faster,
and what grows is the price of splitting. Each axis gets an equal part of what is left of `--seconds` and stops before
the point that would pass it, if a step grows in proportion. FOLDER gets `scale.json`, `scale.png` and `scale.svg`. The
slope is that of a line through the points on log axes: 1 is growth in proportion, 2 quadratic.
"""

import argparse
import csv
import dataclasses
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import side_by_side
from benchmarks.side_by_side import Child, Contender, FailedError
from benchmarks.train_step import MINILM, SENTENCES
from benchmarks.training import Setting, read_columns
from simcse_jax.command_line import Parser, run_command
from simcse_jax.errors import UserError
from simcse_jax.plotting import line_style, new_figure
from simcse_jax.storage import output_folder, write_atomically

AXES = {
    "batch": tuple(2**power for power in range(6, 15)),
    "layers": (1, 2, 3, 6, 12, 24),
    "length": (16, 32, 64, 128, 256, 512),
    "devices": (1, 2, 4, 8),
}
LABELS = {"batch": "examples a step", "layers": "layers", "length": "tokens a sentence", "devices": "devices"}
CHUNK = 64
LENGTH_BATCH = 16  # examples along the length


class Point(NamedTuple):
    """One point of an axis: the seconds of a step, and the peak memory of its process."""

    value: int
    seconds: float
    memory_mib: float


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--num-layers", type=int, default=1, help="along the batch, the length and the devices; 0: all")
    parser.add_argument("--data", default=SENTENCES, help="sentences, repeated where a batch needs more")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--axes", nargs="+", choices=tuple(AXES), default=list(AXES))
    parser.add_argument("--largest", type=int, default=max(AXES["batch"]), help="the largest batch")
    parser.add_argument("--steps", type=int, default=2, help="timed, behind the first; the median counts")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all together")
    parser.add_argument("--output", type=output_folder, help="a folder for the figures and the plot")
    args = parser.parse_args()
    if args.largest < AXES["batch"][0]:
        raise UserError(f"--largest {args.largest}: must be {AXES['batch'][0]} or more")
    return args


def main() -> None:
    """Prints a line a point as soon as it is there."""
    args = parse()
    print(side_by_side.heading(), flush=True)
    found: dict[str, list[Point]] = {}
    end = time.perf_counter() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        for number, axis in enumerate(args.axes):
            budget = (end - time.perf_counter()) / (len(args.axes) - number)
            found[axis] = climb(axis, args, Path(folder), budget)
            if len(found[axis]) > 1:
                time_slope, memory_slope = (slope(found[axis], field) for field in ("seconds", "memory_mib"))
                print(f"{axis}: time grows with slope {time_slope:.2f}, memory with {memory_slope:.2f}", flush=True)
    results = [
        {
            "axis": axis,
            "points": [point._asdict() for point in points],
            "slope_of_seconds": slope(points, "seconds"),
            "slope_of_memory": slope(points, "memory_mib"),
        }
        for axis, points in found.items()
    ]
    if args.output:
        for kind, picture in plot(found).items():
            write_atomically(args.output / f"scale.{kind}", picture)
        side_by_side.report("scale", results, args.output / "scale.json")


def climb(axis: str, args: argparse.Namespace, folder: Path, budget: float) -> list[Point]:
    """The points of an axis, from the least on, as far as the seconds reach."""
    points: list[Point] = []
    started, took = time.perf_counter(), 0.0
    for value in values_of(axis, args):
        if points:
            stepping = (args.steps + 1) * points[-1].seconds  # the rest does not grow: start, compilation
            expected = took + (value / points[-1].value - 1) * stepping
            if time.perf_counter() - started + expected > budget:
                print(f"{axis} {value:,} and beyond: left out, {budget:.0f} s would not do", flush=True)
                break
        began = time.perf_counter()
        try:
            point = measure(axis, value, args, folder)
        except FailedError as error:
            print(f"{axis} {value:,} and beyond: {error}", flush=True)
            break
        took = time.perf_counter() - began
        points.append(point)
        print(f"{axis} {value:,}: {point.seconds:.3f} s a step, {point.memory_mib:,.0f} MiB", flush=True)
    return points


def values_of(axis: str, args: argparse.Namespace) -> list[int]:
    """Those that the model and the command line allow."""
    from simcse_jax.huggingface.published import encoder_config

    config = encoder_config(args.model)
    most = {"batch": args.largest, "layers": config.num_layers, "length": config.max_length}
    return [value for value in AXES[axis] if value <= most.get(axis, value)]


def measure(axis: str, value: int, args: argparse.Namespace, folder: Path) -> Point:
    """One point.

    Raises:
      FailedError: when its process failed.
    """
    setting = Setting(
        model=args.model, data="", dtype=args.dtype, num_layers=args.num_layers, steps=1, warmup=1, chunk_size=CHUNK
    )
    field = {"batch": "batch_size", "layers": "num_layers", "length": "max_length", "devices": "devices"}[axis]
    if axis == "length":
        setting = dataclasses.replace(setting, batch_size=LENGTH_BATCH)
    setting = dataclasses.replace(setting, **{field: value})
    data = folder / f"{axis}{value}.csv"
    sentences = read_columns(args.data, "unsup")[0]
    write(data, long_sentences(sentences, value) if axis == "length" else sentences, setting.batch_size)
    options = dataclasses.asdict(dataclasses.replace(setting, data=str(data)))
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={value}".strip()
    every_gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    environment = {"XLA_FLAGS": flags, "CUDA_VISIBLE_DEVICES": every_gpu} if axis == "devices" else {}
    contender = Contender(f"{axis} {value}", "benchmarks.training:ours", options, sys.executable, environment)
    with Child(contender) as child:
        child.wait()
        rounds = [child.round() for _ in range(args.steps)]
    memory = rounds[-1]["device_memory_mib"] or rounds[-1]["memory_mib"]
    return Point(value, float(np.median([each["seconds"] for each in rounds])), memory)


def long_sentences(sentences: Sequence[str], words: int) -> list[str]:
    """The sentences strung together, so that each has so many words, and so at least as many tokens."""
    endless = itertools.cycle(word for sentence in sentences for word in sentence.split())
    return [" ".join(itertools.islice(endless, words)) for _ in range(LENGTH_BATCH)]


def write(path: Path, sentences: Sequence[str], least: int) -> None:
    """A training file of so many sentences or more; they are repeated."""
    repeated: Iterable[str] = itertools.islice(itertools.cycle(sentences), max(least, len(sentences)))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["sent0"], *([sentence] for sentence in repeated)])


def slope(points: Sequence[Point], field: str) -> float | None:
    """Of a line through the points on log axes; None of fewer than two."""
    if len(points) < 2:
        return None
    values = [point.value for point in points]
    return float(np.polyfit(np.log(values), np.log([getattr(point, field) for point in points]), 1)[0])


def plot(found: dict[str, list[Point]]) -> dict[str, bytes]:
    """Time above, memory below, a column an axis, on log axes: PNG and SVG."""
    axes = [axis for axis, points in found.items() if points]
    if not axes:
        return {}
    from matplotlib.ticker import LogLocator

    with new_figure((2.6 * len(axes) + 1, 5.0)) as (figure, pictures):
        grid = figure.subplots(2, len(axes), squeeze=False, sharey="row")
        figure.suptitle("A training step of unsupervised SimCSE")
        rows = (("seconds", "seconds a step"), ("memory_mib", "peak memory, MiB"))
        for column, axis in enumerate(axes):
            points = found[axis]
            values = [point.value for point in points]
            for row, (field, label) in enumerate(rows):
                plane = grid[row][column]
                plane.plot(values, [getattr(point, field) for point in points], **line_style(row))
                plane.set_xscale("log", base=2)
                plane.set_yscale("log")
                plane.set_xticks(values, [f"{value:,}" for value in values], rotation=45)
                plane.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                plane.yaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
                plane.minorticks_off()
                plane.grid(alpha=0.3)
                if (growth := slope(points, field)) is not None:
                    plane.set_title(f"slope {growth:.2f}")
                if row:
                    plane.set_xlabel(LABELS[axis])
                if not column:
                    plane.set_ylabel(label)
    return pictures


if __name__ == "__main__":
    run_command(main)
