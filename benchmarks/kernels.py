"""The kernels of a trace that took longest, by name: `python -m benchmarks.kernels TRACE_FOLDER [--top 10]`.

The trace is one of `simcse_jax.main … --profile DIR` on a GPU. Times and launches are those of a step, on average over
the traced ones. "busy" is the share of the traced time in which a kernel ran.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import side_by_side
from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_file
from simcse_jax.training.profiling import TRACED

UNITS = {"kernels": "launches a step", "busy_ms": "ms a step", "ms": "ms a step"}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the trace")
    parser.add_argument("--steps", type=int, least=1, default=TRACED, help="that were traced")
    parser.add_argument("--top", type=int, least=1, default=10)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    return parser.parse_args()


def main() -> None:
    """Prints the sums and a row for each of the longest."""
    import jax

    args = parse()
    found = measure(args.folder, args.steps)
    print(f"{found['kernels']:,.0f} kernels a step, {found['busy_ms']:.2f} ms of {found['ms']:.2f} ms busy\n")
    print("| kernel | launches a step | ms a step | share |\n| --- | --- | --- | --- |")
    for each in found["longest"][: args.top]:
        share = each["ms"] / found["busy_ms"]
        print(f"| `{each['name'][:80]}` | {each['launches']:,.1f} | {each['ms']:.3f} | {share:.1%} |")
    figures = [(f"{args.folder.name}: {name}", found[name], unit) for name, unit in UNITS.items()]
    device = jax.devices()[0].device_kind  # this is run where the trace was made
    side_by_side.report("kernels", [found | {"device": device, "figures": figures}], args.output)


def measure(folder: Path, steps: int) -> dict[str, Any]:
    """The kernels of a step, the longest first.

    Raises:
      UserError: when there is no trace of a GPU's kernels.
    """
    from jax.profiler import ProfileData

    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        raise UserError(f"{folder}: has no trace (*.xplane.pb); write one with --profile {folder}")
    planes = [plane for plane in ProfileData.from_file(str(files[-1])).planes if "/device:GPU" in plane.name]
    spans, by_name = [], defaultdict(list)
    for plane in planes:
        for line in plane.lines:
            if "Stream" not in line.name:  # the others say again what ran, by its place in the program
                continue
            for event in line.events:
                spans.append((event.start_ns, event.start_ns + event.duration_ns))
                by_name[re.sub(r"\d+$", "", event.name).rstrip("_.")].append(event.duration_ns)
    if not spans:
        raise UserError(f"{files[-1]}: has no kernels of a GPU; trace a run on one")
    longest = [
        {"name": name, "launches": len(times) / steps, "ms": sum(times) / 1e6 / steps}
        for name, times in sorted(by_name.items(), key=lambda item: -sum(item[1]))
    ]
    return {
        "kernels": len(spans) / steps,
        "busy_ms": covered(spans) / 1e6 / steps,
        "ms": (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e6 / steps,
        "longest": longest[:50],
    }


def covered(spans: list[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    run_command(main)
