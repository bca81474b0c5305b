"""What a corpus of a given size costs: bytes, chip hours and the least time of each stage, from the costs of programs.

Everything that is not computed is an assumption with a name, which the table prints.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, no_such
from simcse_jax.models.config import EncoderConfig
from simcse_jax.training.costs.roofline import Report


class Assumption(NamedTuple):
    """A number of a plan that may be given: its default (None: none, or the topology's), and its meaning."""

    default: float | None
    meaning: str


# Rates are those of docs/guides/corpora.md, medians of a virtual machine of two cores.
ASSUMPTIONS = {
    "sentences": Assumption(None, "sentences of the corpus, all columns together"),
    "tokens": Assumption(None, "tokens of a sentence, on average, with those at its ends"),
    "text_bytes": Assumption(5, "bytes of text for a token"),
    "epochs": Assumption(1, "times that training reads the corpus"),
    "hosts": Assumption(None, "machines with these devices (default: nodes of GPUs; a machine for 4 TPU chips)"),
    "cores": Assumption(64, "processor cores of a host"),
    "tokenize_rate": Assumption(5300, "sentences per second that a core tokenizes and writes"),
    "read_rate": Assumption(35_000, "cold rows per second that a host reads from a prepared corpus on its disk"),
    "network": Assumption(1.25e9, "bytes per second that a host copies from a bucket"),
    "disk": Assumption(2e9, "bytes per second that a host reads from its disk, or writes to it"),
    "train_utilization": Assumption(0.5, "share of the bound's speed that training reaches"),
    "encode_utilization": Assumption(0.5, "share of the bound's speed that encoding reaches"),
    "vector_bytes": Assumption(2, "bytes of an embedding's element on disk (float16)"),
    "memory": Assumption(512e9, "bytes of a host's memory"),
}


def read_plan(text: str) -> dict[str, float]:
    """Reads `NAME=NUMBER,…`; see `ASSUMPTIONS`."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in ASSUMPTIONS:
            raise no_such("--plan", "quantity", name, ASSUMPTIONS)
        try:
            values[name] = float(number)
        except ValueError:
            values[name] = math.nan
        if not 0 < values[name] < math.inf:
            raise UserError(f"--plan {name}={number}: must be a number above 0")
    if lacking := {"sentences", "tokens"} - values.keys():
        raise UserError(f"--plan {text}: needs {min(lacking)}, e.g. sentences=1e10,tokens=22")
    return values


class Stage(NamedTuple):
    """A stage of the work: what it does, its bytes by name, the seconds of each thing that it needs."""

    name: str
    bytes: dict[str, float]
    seconds: dict[str, float]
    chips: int  # devices that it takes

    @property
    def bound(self) -> str:
        """The name of what takes longest."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def least(self) -> float:
        """Seconds, if all that it needs is done at the same time."""
        return self.seconds[self.bound]

    @property
    def chip_hours(self) -> float:
        """Device hours."""
        return self.chips * self.least / 3600


@dataclasses.dataclass(frozen=True)
class CorpusPlan:
    """The stages for a corpus, from the costs of a training step and of the encoding of a batch on a topology.

    `stated` are the assumptions that the user states; all others have their defaults.
    """

    stated: dict[str, float]
    encoder: EncoderConfig
    training: Report
    encoding: Report

    @property
    def assumed(self) -> dict[str, float]:
        """All assumptions, by name."""
        report = self.training
        hosts = report.nodes if report.chip.node_bandwidth else math.ceil(report.chips / 4)
        defaults = {
            name: assumption.default for name, assumption in ASSUMPTIONS.items() if assumption.default is not None
        }
        values = {**defaults, "hosts": hosts, **self.stated}
        return {name: values[name] for name in ASSUMPTIONS}

    @property
    def stages(self) -> list[Stage]:
        """Preparing, copying, training, encoding and indexing."""
        its = self.assumed
        rows, hosts, chips, size = its["sentences"], its["hosts"], self.training.chips, self.encoder.hidden_size
        token = 2 if self.encoder.vocab_size <= 2**16 else 4
        text = rows * its["tokens"] * its["text_bytes"]
        corpus = rows * (its["tokens"] * token + 8)
        vectors = rows * size * its["vector_bytes"]
        tokenizing = rows / (hosts * its["cores"] * its["tokenize_rate"])
        reading_text = text / (hosts * its["network"])
        steps = its["epochs"] * rows / self.training.sentences
        encoded = rows / self.encoding.sentences_per_second
        index = rows * size * 4
        examples = rows * self.training.batch / self.training.sentences  # one read for all columns of an example
        return [
            Stage("prepare", {"text": text, "corpus": corpus}, {"tokenizing": tokenizing, "network": reading_text}, 0),
            Stage("copy to each host", {"each host's disk": corpus}, {"network": corpus / its["network"]}, 0),
            Stage(
                "train",
                {},
                {
                    self.training.bound: steps * self.training.seconds / its["train_utilization"],
                    "reading rows": its["epochs"] * examples / (hosts * its["read_rate"]),
                },
                chips,
            ),
            Stage(
                "encode",
                {"vectors": vectors},
                {
                    self.encoding.bound: encoded / its["encode_utilization"],
                    "tokenizing": tokenizing,
                    "network": reading_text,  # each host copies files of its own to its disk
                    "disk": (2 * text + vectors) / (hosts * its["disk"]),  # it checks them first, then encodes them
                },
                chips,
            ),
            Stage("index", {"float32 vectors": index}, {"disk": (vectors + index) / (hosts * its["disk"])}, 0),
        ]

    @property
    def limits(self) -> dict[str, float]:
        """Limits of search: rows of a device or host, how many of these the corpus takes, and the time of a query."""
        its, row, chip = self.assumed, self.encoder.hidden_size * 4, self.training.chip
        on_chip, on_host = 0.75 * chip.hbm / row, 0.75 * its["memory"] / row
        return {
            "rows_on_a_device": on_chip,
            "devices": math.ceil(its["sentences"] / on_chip),
            "seconds_a_query": min(on_chip, its["sentences"]) * row / chip.hbm_bandwidth,
            "rows_on_a_host": on_host,
            "hosts": math.ceil(its["sentences"] / on_host),
        }

    def to_json(self) -> dict[str, Any]:
        """All figures by name."""
        derived = ("bound", "least", "chip_hours")
        return {
            "assumptions": self.assumed,
            "stages": [stage._asdict() | {name: getattr(stage, name) for name in derived} for stage in self.stages],
            "search": self.limits,
            "training": self.training.to_json(),
            "encoding": self.encoding.to_json(),
        }


def describe_plan(plan: CorpusPlan) -> str:
    """All figures and assumptions, as text."""
    kind = "GPU" if plan.training.chip.node_bandwidth else "chip"
    lines = [f"{'stage':<20}{'least hours':>12}{kind + ' hours':>12}  bound by; bytes"]
    for stage in plan.stages:
        chip_hours = f"{stage.chip_hours:,.1f}" if stage.chips else "–"
        by_part = ", ".join(f"{name} {seconds / 3600:,.2f} h" for name, seconds in stage.seconds.items())
        sizes = ", ".join(f"{name} {amount(size)}" for name, size in stage.bytes.items())
        lines.append(
            f"{stage.name:<20}{stage.least / 3600:>12,.2f}{chip_hours:>12}  {stage.bound} ({by_part})"
            f"{'; ' * bool(sizes)}{sizes}"
        )
    limits = plan.limits
    lines += [
        f"exact search: a {kind} holds {limits['rows_on_a_device']:,.0f} vectors in three quarters of its memory and "
        f"reads them for a query in {1e3 * limits['seconds_a_query']:.0f} ms; all of them take {limits['devices']:,}",
        f"FAISS: a host holds {limits['rows_on_a_host']:,.0f} vectors; all of them take {limits['hosts']:,}",
        "",
        f"{'assumption':<20}{'value':>18}  meaning",
    ]
    for name, value in plan.assumed.items():
        whose = "given" if name in plan.stated else "assumed"
        lines.append(f"{name:<20}{value:>18,.15g}  {ASSUMPTIONS[name].meaning} ({whose})")
    for name, report in (("training", plan.training), ("encoding", plan.encoding)):
        lines.append(
            f"{name:<20}{report.sentences_per_second:>18,.0f}  sentences per second at the bound, by {report.bound}: "
            f"{report.topology}, batch {report.batch} (computed)"
        )
    return "\n".join(lines)


def amount(size: float) -> str:
    """Bytes in units of a thousand, e.g. 520 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:,.3g} {unit}"
        size /= 1000
    return f"{size:,.4g} PB"
