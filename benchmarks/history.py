"""The figures of `make bench`, printed and added to `benchmarks/history.csv`, so that a loss of speed is seen.

    python -m benchmarks.history [--folder runs/bench] [--history benchmarks/history.csv]

It reads the JSON files of a folder. A row has a date, the commit (+: with changes since), the machine, the benchmark,
a figure's name, its value and its unit: medians over the rounds. Ratios, "ours / peer", can be compared although a
machine's speed changes. Figures that are in the file already are not added again, nor are those of a machine on which
other processes used more than a tenth of the processors.
"""

import argparse
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.machine import ROOT
from benchmarks.options import Parser
from benchmarks.side_by_side import aligned
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError
from simcse_jax.host.storage import write_atomically

BUSY = 0.1  # the share of the processors' time that others may use


class Row(NamedTuple):
    """A line of the file."""

    date: str
    commit: str
    machine: str
    benchmark: str
    figure: str
    value: str
    unit: str


def rows(content: dict[str, Any]) -> Iterator[Row]:
    """The figures of a benchmark's JSON file, which `side_by_side.report` has written."""
    measured = [each for one in content["results"] for each in (one, *one.get("contenders", {}).values())]
    devices = {each["device"] for each in measured if "device" in each}
    where = machine.name(content["machine"], devices)
    for result in content["results"]:
        for figure, value, unit in figures(result):
            if not math.isfinite(value):  # a median of nothing, where a server lost every request
                continue
            yield Row(content["date"], content["commit"], where, content["benchmark"], figure, f"{value:.4g}", unit)


def figures(result: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Name, value and unit of each figure of a result, which may have them as `figures`."""
    yield from result.get("figures", ())
    if "host_work" in result:
        for name, each in result["host_work"].items():
            yield f"{result['title']}, {name}", each["processor_ms"]["median"], "ms"
        return
    if "server" in result:
        what = f"{result['server']}, {result['texts']} text{'s' * (result['texts'] > 1)} a request"
        yield f"{what}: texts", result["texts_per_second"], "texts/s"
        yield f"{what}: of encode", 100 * result["of_encode"], "%"
        for percentile in ("p50", "p99"):
            yield f"{what}: {percentile}", result[f"{percentile}_ms"], "ms"
        yield f"{what}: lost", result["lost"], "requests"
        return
    for dtype, peak in result.get("peak_gflops", {}).items():
        yield f"{result['title']}: the machine's products, {dtype}", peak["median"], "GFLOP/s"
    for point in result.get("points", ()):
        yield f"{result['axis']} {point['value']}", point["seconds"], "s"
    contenders = result.get("contenders", {})
    what = ", ".join(filter(None, [result.get("model", ""), result.get("title", "")]))
    ours = next(iter(contenders), "")
    for name, each in contenders.items():
        yield f"{what}: {name}", each["rate"]["median"], f"{result['unit']}/s"
        if name != ours and each["ours_is"]:
            yield f"{what}: {ours} / {name}", each["ours_is"]["median"], "x"
        if each["share_of_peak"]:
            yield f"{what}: {name}, of the peak", 100 * each["share_of_peak"]["median"], "%"
        latencies = {key: value for key, value in each.get("notes", {}).items() if key.endswith("_ms")}
        for key, value in latencies.items():
            yield f"{what}: {name}, {key.removesuffix('_ms')}", value, "ms"


def read(path: Path) -> dict[str, Any]:
    """A benchmark's JSON file.

    Raises:
      UserError: when it is not one.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _ = content["date"], content["busy"], list(rows(content))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is no benchmark's file of this version: {error!r}; run the benchmark again") from None
    return content


def added(text: str, new: Iterable[Row]) -> str:
    """The history with those rows that it lacks.

    Args:
      text: the file, or nothing.
      new: rows in the order of time.

    Raises:
      UserError: when the file has other columns.
    """
    lines = list(csv.reader(io.StringIO(text)))
    if lines and lines[0] != list(Row._fields):
        raise UserError(f"its first line must be {','.join(Row._fields)}")
    there = {tuple(line) for line in lines}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if not lines:
        writer.writerow(Row._fields)
    writer.writerows(row for row in dict.fromkeys(new) if row not in there)
    return text + ("" if not text or text.endswith("\n") else "\n") + file.getvalue()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.history", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench", help="with the benchmarks' JSON files")
    parser.add_argument("--history", type=Path, default=ROOT / "benchmarks" / "history.csv")
    return parser.parse_args()


def main() -> None:
    """Prints the figures by machine and benchmark, then adds them."""
    args = parse()
    paths = sorted(args.folder.glob("*.json"))
    if not paths:
        raise UserError(f"--folder {args.folder}: has no JSON file of a benchmark; run make bench")
    contents = {path: read(path) for path in paths}
    new: list[Row] = []
    for path, content in sorted(contents.items(), key=lambda each: each[1]["date"]):
        found = list(rows(content))
        if not found:
            continue
        print(f"\n{found[0].machine}, {content['date']}, commit {content['commit']}")
        print("\n".join(aligned([[content["benchmark"], "", ""], *([row.figure, *row[5:]] for row in found)])))
        if (content["busy"] or 0) > BUSY:
            print(f"not recorded: other processes used {content['busy']:.0%} of the processors ({path.name})")
        else:
            new += found
    try:
        before = args.history.read_text(encoding="utf-8") if args.history.exists() else ""
        after = added(before, new)
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"--history {args.history}: {error}") from None
    write_atomically(args.history, after)
    count = len(after.splitlines()) - max(len(before.splitlines()), 1)  # without the header
    print(f"\n{count} figures added to {args.history}")


if __name__ == "__main__":
    run_command(main)
