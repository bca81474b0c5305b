"""The least time that a step can take on a chip with known peaks, and its bottleneck."""

import dataclasses
from typing import Any, NamedTuple

from simcse_jax.costs.program import Collective


class Chip(NamedTuple):
    """One chip's peaks: bfloat16 FLOP/s, bytes of HBM, its bytes/s, and bytes/s out of the chip over all its links."""

    flops: float
    hbm: float
    hbm_bandwidth: float
    link_bandwidth: float


# From cloud.google.com/tpu/docs, the pages v4, v5e, v5p and v6e. They give the links' bandwidth in both
# directions together: half of it goes out.
CHIPS = {
    "v4": Chip(275e12, 32 * 2**30, 1200e9, 300e9),
    "v5e": Chip(197e12, 16 * 2**30, 819e9, 200e9),
    "v5p": Chip(459e12, 95 * 2**30, 2765e9, 600e9),
    "v6e": Chip(918e12, 32 * 2**30, 1600e9, 400e9),
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
    passes: dict[int, int]  # FLOPs of the matrix products, by the bfloat16 passes that a product takes
    hbm_bytes: int
    collectives: list[Collective]

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
        """Bytes sent over the links."""
        return sum(collective.bytes_sent for collective in self.collectives)

    @property
    def times(self) -> dict[str, float]:
        """Seconds of the matrix products, of HBM and of the links, each alone at its peak."""
        return {
            "compute": sum(passes * flops for passes, flops in self.passes.items()) / self.chip.flops,
            "HBM": self.hbm_bytes / self.chip.hbm_bandwidth,
            "links": self.bytes_sent / self.chip.link_bandwidth,
        }

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
        names = ("flops", "bytes_sent", "times", "bound", "seconds", "sentences_per_second", "share_of_peak")
        collectives = [collective._asdict() for collective in self.collectives]
        derived = {name: getattr(self, name) for name in names}
        return dataclasses.asdict(self) | {"collectives": collectives} | derived


def describe(report: Report) -> str:
    """All figures of one topology, for people."""
    parts = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in report.memory.items())
    passes = ", ".join(f"{flops / 1e9:.1f} in {count}" for count, flops in sorted(report.passes.items()))
    rows = [
        ("memory", f"{sum(report.memory.values()) / 2**30:.2f} of {report.chip.hbm / 2**30:.0f} GiB: {parts}"),
        ("FLOPs", f"{report.flops / 1e9:.1f} G in matrix products (bfloat16 passes: {passes})"),
        ("HBM traffic", f"{report.hbm_bytes / 1e9:.2f} GB"),
        *(
            (each.kind, f"{each.bytes / 1e6:.2f} MB, calls: {each.calls}, chips: {each.devices}")
            for each in report.collectives
        ),
        ("times", ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in report.times.items()) + " ms"),
        ("step", f"{1e3 * report.seconds:.2f} ms or more, bound by {report.bound}"),
        (
            "throughput",
            f"{report.sentences_per_second:,.0f} sentences/s or less, {report.share_of_peak:.1%} of the peak",
        ),
    ]
    note = f"For one chip, at its peaks: a bound, not a measurement. Compiled in {report.compile_seconds:.0f} s."
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
