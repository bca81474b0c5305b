"""How a training step's time and memory grow with the batch, the number of layers, the length and the devices.

    python -m benchmarks.scale [--axes batch layers length devices] [--largest 16384] [--seconds 600] [--output FOLDER]
    python -m benchmarks.scale --redraw scale.json --output FOLDER

Unsupervised SimCSE, float32 (or `--dtype`), each point in a process of its own: a step that compiles, and `--steps`
that are timed. Batches are encoded in chunks of 64 examples. When the batch or the devices vary, the
model has `--num-layers` layers; when batch, layers or devices vary, the sentences are real ones of at most 32 tokens.
When the length varies, sentences are joined until none is shorter than that length. On a CPU devices are virtual: more
of them are no faster, and the growth is the cost of splitting. The axes share the remaining `--seconds` equally; each
stops before the point that would exceed its share, if a step's time grows in proportion. FOLDER gets `scale.json`,
`scale.png` and `scale.svg`. The slope of a line through the points on log axes is printed: 1 is growth in proportion, 2
quadratic. `--redraw` draws the points of an earlier scale.json again and measures nothing.
"""

import argparse
import csv
import dataclasses
import itertools
import json
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import side_by_side
from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from benchmarks.side_by_side import Child, Contender, FailedError
from benchmarks.step_options import SENTENCES
from benchmarks.training import Setting, read_columns
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError, reason
from simcse_jax.evaluation.plotting import new_figure, styles
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import write_atomically

AXES = {
    "batch": tuple(2**power for power in range(6, 15)),
    "layers": (1, 2, 3, 6, 12, 24),
    "length": (16, 32, 64, 128, 256, 512),
    "devices": (1, 2, 4, 8),
}
LABELS = {"batch": "examples a step", "layers": "layers", "length": "tokens a sentence", "devices": "devices"}
CHUNK = 64
# Why a line bends, for the plot.
KINKS = {
    "batch": f"Batch: above {CHUNK} examples each chunk of {CHUNK} is encoded twice, by a larger program (first bend "
    "of memory); above 2,048 the embeddings of the whole batch take more than what one chunk computes (second bend).",
    "layers": "Layers: of the last layer only the first token is computed, so one layer alone is cheap.",
}
MEMORY = "Memory is the peak of the whole process, compiling included."
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
    parser.add_argument("--steps", type=int, least=1, default=2, help="timed, after the first; the median counts")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all together")
    parser.add_argument("--output", type=output_folder, help="a folder for the figures and the plot")
    parser.add_argument("--redraw", type=Path, metavar="JSON", help="draw an earlier scale.json; measure nothing")
    args = parser.parse_args()
    if args.redraw and not args.output:
        raise UserError("--redraw: needs --output, the folder for the plot")
    if args.largest < AXES["batch"][0]:
        raise UserError(f"--largest {args.largest}: must be {AXES['batch'][0]} or more")
    return args


def main() -> None:
    """Prints a line for each point as soon as it is measured."""
    args = parse()
    if args.redraw:
        write_plot(read_points(args.redraw), args.output)
        return
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
        write_plot(found, args.output)
        side_by_side.report("scale", results, args.output / "scale.json")


def read_points(path: Path) -> dict[str, list[Point]]:
    """The points of a scale.json, by axis.

    Raises:
      UserError: when the file is missing or is not such a file.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        return {result["axis"]: [Point(**point) for point in result["points"]] for result in results}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--redraw {path}: is no scale.json: {reason(error)}") from None


def write_plot(found: dict[str, list[Point]], folder: Path) -> None:
    """Writes scale.png and scale.svg."""
    for kind, picture in plot(found).items():
        write_atomically(folder / f"scale.{kind}", picture)


def climb(axis: str, args: argparse.Namespace, folder: Path, budget: float) -> list[Point]:
    """The points of an axis, smallest first, until the time is used up."""
    points: list[Point] = []
    started, took = time.perf_counter(), 0.0
    for value in values_of(axis, args):
        if points:
            stepping = (args.steps + 1) * points[-1].seconds  # the rest does not grow: start, compilation
            expected = took + (value / points[-1].value - 1) * stepping
            if time.perf_counter() - started + expected > budget:
                print(f"{axis} {value:,} and above: left out, {budget:.0f} s are too few", flush=True)
                break
        began = time.perf_counter()
        try:
            point = measure(axis, value, args, folder)
        except FailedError as error:
            print(f"{axis} {value:,} and above: {error}", flush=True)
            break
        took = time.perf_counter() - began
        points.append(point)
        print(f"{axis} {value:,}: {point.seconds:.3f} s a step, {point.memory_mib:,.0f} MiB", flush=True)
    return points


def values_of(axis: str, args: argparse.Namespace) -> list[int]:
    """The axis' values that the model and the command line allow."""
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
    """The sentences joined, so that each has so many words, and so at least as many tokens."""
    endless = itertools.cycle(word for sentence in sentences for word in sentence.split())
    return [" ".join(itertools.islice(endless, words)) for _ in range(LENGTH_BATCH)]


def write(path: Path, sentences: Sequence[str], least: int) -> None:
    """A training file of at least so many sentences; they are repeated where there are fewer."""
    repeated: Iterable[str] = itertools.islice(itertools.cycle(sentences), max(least, len(sentences)))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["sent0"], *([sentence] for sentence in repeated)])


def slope(points: Sequence[Point], field: str) -> float | None:
    """The slope of a line through the points on log axes; None for fewer than two."""
    if len(points) < 2:
        return None
    values = [point.value for point in points]
    return float(np.polyfit(np.log(values), np.log([getattr(point, field) for point in points]), 1)[0])


def plot(found: dict[str, list[Point]]) -> dict[str, bytes]:
    """Time above, on a log axis; memory below, from zero on; a column for each axis: PNG and SVG.

    An axis with a single point has no line: it is left out, and a remark in the plot gives its numbers.
    """
    axes = [axis for axis, points in found.items() if len(points) > 1]
    if not axes:
        return {}
    from matplotlib.ticker import LogLocator

    notes = [KINKS[axis] for axis in axes if axis in KINKS] + [MEMORY]
    notes += [
        f"Not drawn, measured once: {points[0].value:,} {LABELS[axis]}, {points[0].seconds:.3g} s, "
        f"{points[0].memory_mib:,.0f} MiB."
        for axis, points in found.items()
        if len(points) == 1
    ]
    width = 3.2 * len(axes) + 0.6
    lines = [line for note in notes for line in textwrap.wrap(note, int(14 * width))]
    with new_figure((width, 5.0 + 0.16 * len(lines))) as (figure, pictures):
        grid = figure.subplots(2, len(axes), squeeze=False, sharex="col", sharey="row")
        figure.suptitle("A training step of unsupervised SimCSE", fontsize=11)
        figure.supxlabel("\n".join(lines), fontsize=8, x=0.01, ha="left")
        for column, axis in enumerate(axes):
            points = found[axis]
            values = [point.value for point in points]
            time, memory = grid[:, column]
            for plane, field in ((time, "seconds"), (memory, "memory_mib")):
                style = styles(("seconds", "memory_mib"))[field]
                plane.plot(values, [getattr(point, field) for point in points], markersize=5, **style)
                plane.grid(alpha=0.3)
            time.set_title(f"slope on log axes: {slope(points, 'seconds'):.2f}")
            time.set_xscale("log", base=2)
            time.set_yscale("log")
            time.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            time.yaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
            time.minorticks_off()
            memory.set_xticks(values, [f"{value:,}" for value in values], rotation=45)
            memory.minorticks_off()
            memory.yaxis.set_major_formatter(lambda tick, _: f"{tick:,.0f}")
            memory.set_xlabel(LABELS[axis])
        grid[1][0].set_ylim(0, 1.08 * max(point.memory_mib for axis in axes for point in found[axis]))
        grid[0][0].set_ylabel("seconds a step")
        grid[1][0].set_ylabel("peak memory, MiB")
    return pictures


if __name__ == "__main__":
    run_command(main)
