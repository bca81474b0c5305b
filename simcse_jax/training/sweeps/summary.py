"""From the runs' numbers to the rows of a table: means, deviations, and differences from a baseline."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.config.sections import Section
from simcse_jax.evaluation.significance import paired_p
from simcse_jax.training.sweeps.metrics import HEADINGS, share_data
from simcse_jax.training.sweeps.variants import Variant, find_baseline, read_seeds

Results = Mapping[str, Mapping[int, Mapping[str, float]]]  # variant → seed → metric → value

MOST_TOGETHER = 3  # metrics that stand next to each other with the paper's values


class Cell(NamedTuple):
    """One metric of one variant. None where there is no such number."""

    values: dict[int, float]  # seed → value, finished runs only
    mean: float | None
    std: float | None  # of the seeds, with n - 1; of two or more
    paper: float | None
    difference: float | None  # from the baseline: mean over the seeds that both have
    p: float | None
    heading: str  # of the metric
    holm: float | None = None  # p, corrected for the tests of the metric's column
    chosen: bool = False  # whether the row's reading or rate was chosen on this metric's data
    differences: Mapping[int, float] = MappingProxyType({})  # seed → value - that of the baseline


class TableRow(NamedTuple):
    """One variant of the table."""

    variant: str
    baseline: str
    cells: dict[str, Cell]  # by metric
    fields: Mapping[str, Any]  # of the config, as the variant sets them
    quoted: bool = False  # of another system, with the paper's values alone

    @property
    def label(self) -> str:
        """Its name with the number of its finished runs: the fewest and the most of the metrics that have some."""
        if self.quoted:
            return f"{self.variant} (quoted)"
        counts = sorted({len(cell.values) for cell in self.cells.values() if cell.values}) or [0]
        return f"{self.variant} (n = {'–'.join(map(str, dict.fromkeys([counts[0], counts[-1]])))})"


def summarize(
    sweep: Section, variants: Sequence[Variant], results: Results, headings: Mapping[str, str] = HEADINGS
) -> list[TableRow]:
    """The rows of the table, in the order of the variants; the arguments are those of `write`."""
    seeds = read_seeds(sweep)

    def values(name: str, metric: str) -> dict[int, float]:
        runs = results.get(name, {})
        return {seed: float(runs[seed][metric]) for seed in seeds if seed in runs and metric in runs[seed]}

    rows = []
    for variant in variants:
        baseline, cells = find_baseline(variant, sweep), {}
        for metric in sweep.metrics:
            by_seed = values(variant.name, metric)
            other = {} if baseline == variant.name else values(baseline, metric)
            shared = [seed for seed in by_seed if seed in other]
            pairs = [by_seed[seed] for seed in shared], [other[seed] for seed in shared]
            cells[metric] = Cell(
                by_seed,
                float(np.mean(list(by_seed.values()))) if by_seed else None,
                float(np.std(list(by_seed.values()), ddof=1)) if len(by_seed) > 1 else None,
                variant.paper.get(metric),
                float(np.mean(np.subtract(*pairs))) if shared else None,
                paired_p(*pairs),
                headings[metric],
                differences={seed: by_seed[seed] - other[seed] for seed in shared},
                chosen=any(share_data(metric, other) for other in variant.chosen_on),
            )
        rows.append(TableRow(variant.name, baseline, cells, variant.fields, variant.quoted))
    for metric in sweep.metrics:
        tests = [(row.cells, p) for row in rows if (p := row.cells[metric].p) is not None]
        for (cells, _), corrected in zip(tests, holm([p for _, p in tests]), strict=True):
            cells[metric] = cells[metric]._replace(holm=corrected)
    return rows


def holm(ps: Sequence[float]) -> list[float]:
    """The p-values of several tests, corrected for their number (Holm 1979).

    With them, the chance that any of the differences stated below a level is none is at most that level.
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(np.argsort(ps)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = largest
    return corrected
