"""The harness: contenders in processes of their own, asked in turn for one round each, A B A B … (see `ORDERS`).

Each contender is started, builds and warms up by itself (`benchmarks.contender`), and is idle while another one does
its rounds, so that its peak memory is its own and its threads disturb nobody. The first contender is ours: all others
are given as the median of our rate over theirs, round by round, since a machine's speed changes in minutes. Between
rounds the machine's matrix-product peak is measured. A contender's share of it counts the operations that its work
needs (`benchmarks.work`), not those that it executes. A contender that cannot be built, or fails in a round, is named
with its reason, and the others continue.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.machine import ROOT
from simcse_jax.host.storage import write_atomically

start = subprocess.Popen  # of a contender's process
# In turn: all are built one after the other, so that none is built while another one warms up, and then do rounds in
# turn. At once: all are built at the same time, where that is mostly compiling and there are cores for all. Apart: each
# is built, does its rounds and ends before the next one, where a device belongs to one process, as a TPU does.
ORDERS = ("in turn", "at once", "apart")
# Several processes share a GPU, of which JAX would take most at its start; of several GPUs only some would take all.
DEFAULTS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "CUDA_VISIBLE_DEVICES": "0"}


class Contender(NamedTuple):
    """A program to measure: a factory (`module:function`, see `benchmarks.contender`) and its options, which are JSON.

    `python` runs it, in `folder`, the root of a checkout; `environment` sets variables for it; None removes one.
    """

    name: str
    factory: str
    options: Mapping[str, Any]
    python: str = sys.executable
    environment: Mapping[str, str | None] = {}
    folder: Path = ROOT


def python_of(name: str) -> str:
    """The Python of an environment, for a process in another folder.

    With a slash: a bare name is looked up in PATH. Not resolved, since an environment's Python is a link.
    """
    return os.path.abspath(name) if os.sep in name else name


class Need(NamedTuple):
    """The operations for a unit of work (see `benchmarks.work`), and their dtype, float32 or bfloat16."""

    flops: float
    dtype: str


class FailedError(Exception):
    """Why a contender cannot be measured, in one line."""


class Child:
    """A contender's process. Used as a context, it ends after the block."""

    def __init__(self, contender: Contender):
        """Starts it; `wait` waits for it to be built."""
        self._log = tempfile.TemporaryFile("w+")
        environment = {**DEFAULTS, **os.environ, **contender.environment}
        self._process = start(
            [contender.python, "-m", "benchmarks.contender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=contender.folder,
            env={name: value for name, value in environment.items() if value is not None},
        )
        self._send(json.dumps({"factory": contender.factory, "options": dict(contender.options)}))

    def wait(self) -> dict[str, Any]:
        """Its device and its versions, once it is built and warm.

        Raises:
          FailedError: when it cannot be built.
        """
        return self._receive()

    def round(self) -> dict[str, Any]:
        """One round: `work`, `seconds`, `notes`, `memory_mib`, `device_memory_mib` (its peaks so far).

        Raises:
          FailedError: when it failed.
        """
        self._send("round")
        return self._receive()

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died: reported when its answer is read
            print(line, file=self._process.stdin, flush=True)

    def _receive(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._log.seek(0)
            last = ([line.strip() for line in self._log if line.strip()] or ["it said nothing"])[-1]
            raise FailedError(f"its process ended with code {code}: {last[:200]}")
        answer = json.loads(line)
        if "failed" in answer:
            self._log.seek(0)
            sys.stderr.writelines(self._log.readlines()[-30:])
            raise FailedError(answer["failed"])
        return answer


@dataclasses.dataclass
class Comparison:
    """The measurements of contenders that were asked in turn.

    `ours` is the name of the first; `rounds` has the answers of each by name, in the same order for all; `peaks` the
    machine's FLOP/s at each round, by dtype; `needs` the work that is counted for each contender, by name.
    """

    title: str
    unit: str
    ours: str
    rounds: dict[str, list[dict[str, Any]]]
    missing: dict[str, str]
    about: dict[str, dict[str, Any]]  # each one's answer when it was built
    peaks: dict[str, list[float]]
    needs: Mapping[str, Need]

    def rates(self, name: str) -> list[float]:
        """Units a second, by round."""
        return [each["work"] / each["seconds"] for each in self.rounds[name]]

    def ratios(self, name: str, other: str) -> list[float]:
        """How many times as fast the first is as the other, round by round; nothing where either is missing."""
        if name not in self.rounds or other not in self.rounds:
            return []
        return [mine / theirs for mine, theirs in zip(self.rates(name), self.rates(other), strict=True)]

    def shares(self, name: str) -> list[float]:
        """Of the machine's peak in the contender's dtype, by round; nothing where that is not known."""
        flops, dtype = self.needs.get(name, Need(0, ""))
        peaks = self.peaks.get(dtype, [])
        return [flops * rate / peak for rate, peak in zip(self.rates(name), peaks, strict=True)] if peaks else []

    def to_json(self) -> dict[str, Any]:
        """All figures; `ours_is` is how many times as fast the first contender is."""
        found = {}
        for name in self.rounds:
            last = self.rounds[name][-1]
            found[name] = {
                "rate": spread(self.rates(name)),
                "seconds": spread([each["seconds"] for each in self.rounds[name]]),
                "ours_is": spread(self.ratios(self.ours, name)),
                "share_of_peak": spread(self.shares(name)),
                "built_in": self.about[name].get("seconds"),  # an earlier commit does not say
                "peak_memory_mib": round(last["memory_mib"]),
                "peak_device_memory_mib": last["device_memory_mib"],
                "device": self.about[name]["device"],
                "versions": self.about[name]["versions"],
                "notes": last["notes"],
            }
        return {
            "title": self.title,
            "unit": self.unit,
            "rounds": max(map(len, self.rounds.values()), default=0),
            "contenders": found,
            "missing": self.missing,
            "peak_gflops": {dtype: spread([peak / 1e9 for peak in peaks]) for dtype, peaks in self.peaks.items()},
        }


def compare(
    title: str,
    unit: str,
    contenders: Sequence[Contender],
    rounds: int,
    *,
    needs: Mapping[str, Need] | None = None,
    order: str = ORDERS[0],
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Comparison:
    """Asks each for so many rounds.

    Args:
      title, unit: of the table: the comparison, and the unit that rates count.
      contenders: ours first.
      rounds: of each.
      needs: of a unit of work, by contender's name; the machine's peak is measured in the dtypes that they name.
      order: one of `ORDERS`.
      say: takes a line on the progress.
    """
    needs = needs or {}
    references = {
        dtype: [
            Contender(f"{dtype} products of {kind}", f"benchmarks.peak:{kind}_products", {"dtype": dtype})
            for kind in ("jax", "torch")
        ]
        for dtype in sorted({need.dtype for need in needs.values()})
    }
    everyone = [*contenders, *(each for those in references.values() for each in those)]
    missing: dict[str, str] = {}
    about: dict[str, dict[str, Any]] = {}
    answers: dict[str, list[dict[str, Any]]] = {}

    def lose(name: str, why: str) -> None:
        missing[name] = why
        answers.pop(name, None)
        say(f"{name}: {why}")

    for group in [[one] for one in everyone] if order == "apart" else [everyone]:
        with contextlib.ExitStack() as stack:
            started = ((one.name, stack.enter_context(Child(one))) for one in group)
            children = {}
            for name, child in list(started) if order == "at once" else started:
                say(f"{title}: building {name}")
                try:
                    about[name] = child.wait()
                    children[name], answers[name] = child, []
                except FailedError as error:
                    lose(name, str(error))
            for number in range(rounds):
                say(f"{title}: round {number + 1} of {rounds}")
                for name in [name for name in children if name in answers]:
                    try:
                        answers[name].append(children[name].round())
                    except FailedError as error:
                        lose(name, f"failed in round {number + 1}: {error}")
    rates = {
        dtype: [
            [each["work"] / each["seconds"] for each in answers.pop(one.name)] for one in those if one.name in answers
        ]
        for dtype, those in references.items()
    }
    peaks = {dtype: [max(tried) for tried in zip(*found, strict=True)] for dtype, found in rates.items() if found}
    return Comparison(title, unit, contenders[0].name, answers, missing, about, peaks, needs)


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median, least and most; None of nothing."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def table(comparison: Comparison) -> str:
    """A row a contender, then those that are missing and the machine's peak."""
    found = comparison.to_json()
    header = [f"{comparison.unit}/s", "least", "most", "s a round", "ours is", "of the peak", "memory, MiB"]
    rows = [[comparison.title, *header]]
    for name, figures in found["contenders"].items():
        rate, ratio, share = figures["rate"], figures["ours_is"], figures["share_of_peak"]
        memory = f"{figures['peak_memory_mib']:,}"
        if figures["peak_device_memory_mib"]:
            memory += f" + {figures['peak_device_memory_mib']:,.0f}"
        rows.append(
            [
                name,
                *(f"{rate[key]:.4g}" for key in ("median", "min", "max")),
                f"{figures['seconds']['median']:.3g}",
                f"{ratio['median']:.2f} x" if ratio else "-",
                f"{share['median']:.1%}" if share else "-",
                memory,
            ]
        )
    lines = [*aligned(rows), *(f"  missing: {name}: {reason}" for name, reason in comparison.missing.items())]
    for dtype, peak in found["peak_gflops"].items():
        figures = f"{peak['median']:,.0f} GFLOP/s ({peak['min']:,.0f} to {peak['max']:,.0f})"
        lines.append(f"  the machine's matrix products, {dtype}: {figures}")
    devices = {figures["device"] for figures in found["contenders"].values()}
    if len(devices) > 1:
        lines += [f"  {name} on {figures['device']}" for name, figures in found["contenders"].items()]
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *cells]))
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def heading() -> str:
    """The machine and the versions, in a line or two."""
    about = machine.describe()
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions().items())
    return f"{about['cpu']}, {about['cores']} cores\n{versions}"


def report(benchmark: str, results: Sequence[Any], output: Path | None) -> None:
    """Writes the JSON file, whole or not at all, and says so: date, commit, machine, command and the results.

    Raises:
      UserError: when it cannot be written.
    """
    if output is None:
        return
    content = {
        "benchmark": benchmark,
        "arguments": sys.argv[1:],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "busy": machine.busy(),  # with other work, since the contenders have ended
        "versions": machine.versions(),
        "results": list(results),
    }
    write_atomically(output, json.dumps(content, indent=1) + "\n")
    print(f"written to {output}")
