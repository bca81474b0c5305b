"""The least time that a program can take on devices with known peaks, and its bottleneck."""

import dataclasses
from typing import Any, NamedTuple

from simcse_jax.devices.flops import PEAKS, TPU_PASSES, Passes
from simcse_jax.training.costs.program import Collective


class Chip(NamedTuple):
    """One device's peaks: bfloat16 FLOP/s, bytes of HBM, its bytes/s, and bytes/s out of it over all its links.

    GPUs of several nodes have a second, slower link: `node_bandwidth` is a GPU's share of what leaves its node.
    `passes` has the time of float32 products in that of bfloat16 ones.
    """

    flops: float
    hbm: float
    hbm_bandwidth: float
    link_bandwidth: float
    node_bandwidth: float = 0.0
    passes: Passes = TPU_PASSES


def _gpu_passes(times: float) -> Passes:
    """XLA computes float32 products with TensorFloat32, at half the speed of bfloat16, unless all bits are asked for.

    Those are computed by the ordinary cores, which take `times` the time of bfloat16.
    """
    return {"HIGHEST": (1, times, times), "HIGH": (1, 2, 2), "DEFAULT": (1, 2, 2)}


# From where the peaks are (`devices.flops`). Google gives the links' bandwidth in both directions together: half of it
# goes out. So does NVIDIA for NVLink. Bytes and bandwidth of the memory are those of XLA's descriptions (see `gpus`).
# Of a DGX A100's node each GPU has 200 Gb/s, of the others 400.
CHIPS = {
    "v4": Chip(PEAKS["v4"], 32 * 2**30, 1200e9, 300e9),
    "v5e": Chip(PEAKS["v5e"], 16 * 2**30, 819e9, 200e9),
    "v5p": Chip(PEAKS["v5p"], 95 * 2**30, 2765e9, 600e9),
    "v6e": Chip(PEAKS["v6e"], 32 * 2**30, 1600e9, 400e9),
    "a100": Chip(PEAKS["a100"], 85_100_068_864, 2039.04e9, 300e9, 25e9, _gpu_passes(312 / 19.5)),
    "h100": Chip(PEAKS["h100"], 84_942_979_072, 3352.32e9, 450e9, 50e9, _gpu_passes(989 / 67)),
    "h200": Chip(PEAKS["h200"], 151_397_597_184, 4800e9, 450e9, 50e9, _gpu_passes(989 / 67)),
    "b200": Chip(PEAKS["b200"], 191_514_411_008, 7672.32e9, 900e9, 50e9, _gpu_passes(2250 / 75)),
}


@dataclasses.dataclass(frozen=True)
class Report:
    """The costs of one step: memory, FLOPs and bytes of one chip; times in seconds."""

    topology: str
    chips: int
    batch: int
    sentences: int  # rows of data times columns, as the training log counts them
    compile_seconds: float
    memory: dict[str, int]
    passes: dict[float, int]  # FLOPs of the matrix products, by the bfloat16 passes that a product takes
    hbm_bytes: int
    collectives: list[Collective]
    nodes: int = 1

    @property
    def chip(self) -> Chip:
        """The peaks of the chip."""
        return CHIPS[self.topology.partition(":")[0]]

    @property
    def flops(self) -> int:
        """FLOPs of the matrix products, each counted once."""
        return sum(self.passes.values())

    @property
    def bytes_sent(self) -> float:
        """Bytes sent over the links (of several nodes: over those inside of a node)."""
        return sum(collective.sent_inside(self.chips // self.nodes) for collective in self.collectives)

    @property
    def bytes_between_nodes(self) -> float:
        """Bytes that leave a node for each of its devices."""
        return sum(collective.sent_outside(self.chips // self.nodes) for collective in self.collectives)

    @property
    def times(self) -> dict[str, float]:
        """Seconds of the matrix products, of HBM and of the links, each alone at its peak."""
        times = {
            "compute": sum(passes * flops for passes, flops in self.passes.items()) / self.chip.flops,
            "HBM": self.hbm_bytes / self.chip.hbm_bandwidth,
            "links": self.bytes_sent / self.chip.link_bandwidth,
        }
        if self.nodes > 1:
            times["nodes"] = self.bytes_between_nodes / self.chip.node_bandwidth
        return times

    @property
    def bound(self) -> str:
        """The name of the longest of them."""
        return max(self.times, key=self.times.__getitem__)

    @property
    def seconds(self) -> float:
        """The least seconds of a step: all three at the same time."""
        return self.times[self.bound]

    @property
    def sentences_per_second(self) -> float:
        """Sentences per second of all chips together, in that time."""
        return self.sentences / self.seconds

    @property
    def share_of_peak(self) -> float:
        """The FLOPs as a share of the chip's bfloat16 FLOPs in that time."""
        return self.flops / self.seconds / self.chip.flops

    def to_json(self) -> dict[str, Any]:
        """All figures by name."""
        names = ("flops", "bytes_sent", "bytes_between_nodes", "times", "bound", "seconds", "sentences_per_second")
        collectives = {"collectives": [collective._asdict() for collective in self.collectives]}
        return (
            dataclasses.asdict(self) | collectives | {name: getattr(self, name) for name in (*names, "share_of_peak")}
        )


def describe(report: Report) -> str:
    """All figures of one topology, as text."""
    kind = "GPU" if report.chip.node_bandwidth else "chip"
    parts = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in report.memory.items())
    passes = ", ".join(f"{flops / 1e9:.1f} in {count:.3g}" for count, flops in sorted(report.passes.items()))
    rows = [
        ("memory", f"{sum(report.memory.values()) / 2**30:.2f} of {report.chip.hbm / 2**30:.0f} GiB: {parts}"),
        ("FLOPs", f"{report.flops / 1e9:.1f} G in matrix products (bfloat16 passes: {passes})"),
        ("HBM traffic", f"{report.hbm_bytes / 1e9:.2f} GB"),
        *(
            (
                collective.kind,
                f"{collective.bytes / 1e6:.2f} MB, calls: {collective.calls}, {kind}s: {collective.devices}",
            )
            for collective in report.collectives
        ),
        ("times", ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in report.times.items()) + " ms"),
        ("step", f"{1e3 * report.seconds:.2f} ms or more, bound by {report.bound}"),
        (
            "throughput",
            f"{report.sentences_per_second:,.0f} sentences/s or less, {report.share_of_peak:.1%} of the peak",
        ),
    ]
    note = f"For one {kind}, at its peaks: a bound, not a measurement. Compiled in {report.compile_seconds:.0f} s."
    return "\n".join([*(f"{name:<20}{text}" for name, text in rows), note])


def table(reports: list[Report]) -> str:
    """A row per topology. The efficiency compares sentences per second and chip with the first row."""
    lines = ["topology    chips   batch    GiB   GFLOPs  MB sent       ms  bound by  sentences/s  efficiency"]
    first = reports[0].sentences_per_second / reports[0].chips
    for report in reports:
        lines.append(
            f"{report.topology:<10}{report.chips:>7}{report.batch:>8}{sum(report.memory.values()) / 2**30:>7.2f}"
            f"{report.flops / 1e9:>9.1f}{report.bytes_sent / 1e6:>9.1f}{1e3 * report.seconds:>9.2f}{report.bound:>10}"
            f"{report.sentences_per_second:>13,.0f}{report.sentences_per_second / report.chips / first:>12.1%}"
        )
    return "\n".join([*lines, "GiB, GFLOPs and MB are per chip. Times are bounds at its peaks, not measurements."])
