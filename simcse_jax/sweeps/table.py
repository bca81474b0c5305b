"""The table of a sweep: from the runs' numbers to markdown, csv and a plot."""

import csv as csv_lib
import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.stats
from ml_collections import config_dict

from simcse_jax.plotting import COLOURS, Pictures, new_figure
from simcse_jax.storage import write_together
from simcse_jax.sweeps.variants import METRICS, Variant, baseline_of, read_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = Mapping[str, Mapping[int, Mapping[str, float]]]  # variant → seed → metric → value

EMPTY = "–"  # a cell without a value
LEVEL = 0.05  # differences with a smaller p are stated at the top
FLAT = 1e-9  # differences that vary by less, relative to their size, do not vary
OURS, SEEDS, PAPER, BASELINE = "mean ± std of our seeds", "one seed", "paper", "our baseline"  # in the legend
INK, PALE = COLOURS[:2]  # ours and the paper's; the shapes of their points differ too
MOST_FIELDS = 4  # that a plot names


class Cell(NamedTuple):
    """One metric of one variant. None where there is no such number."""

    values: dict[int, float]  # seed → value, finished runs only
    mean: float | None
    std: float | None  # of the seeds, with n - 1; of two or more
    paper: float | None
    difference: float | None  # from the baseline: mean over the seeds that both have
    p: float | None
    heading: str  # of the metric


class Row(NamedTuple):
    """One variant of the table."""

    variant: str
    baseline: str
    cells: dict[str, Cell]  # by metric
    fields: Mapping[str, Any]  # of the config, as the variant sets them


def paired_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The p-value of a paired two-sided t-test: could the two have the same mean?

    None where the test is undefined: below two pairs, or when all differences are the same.
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    if len(differences) < 2 or np.ptp(differences) <= FLAT * max(1.0, np.abs(differences).max()):
        return None
    return float(scipy.stats.ttest_rel(first, second).pvalue)


def summarize(
    sweep: config_dict.ConfigDict,
    variants: Sequence[Variant],
    results: Results,
    headings: Mapping[str, str] = METRICS,
) -> list[Row]:
    """The rows of the table, in the order of the variants; the arguments are those of `write`."""
    seeds = read_seeds(sweep)

    def values(name: str, metric: str) -> dict[int, float]:
        runs = results.get(name, {})
        return {seed: float(runs[seed][metric]) for seed in seeds if seed in runs and metric in runs[seed]}

    rows = []
    for variant in variants:
        baseline, cells = baseline_of(variant, sweep), {}
        for metric in sweep.metrics:
            own = values(variant.name, metric)
            other = {} if baseline == variant.name else values(baseline, metric)
            shared = [seed for seed in own if seed in other]
            pairs = [own[seed] for seed in shared], [other[seed] for seed in shared]
            cells[metric] = Cell(
                own,
                float(np.mean(list(own.values()))) if own else None,
                float(np.std(list(own.values()), ddof=1)) if len(own) > 1 else None,
                variant.paper.get(metric),
                float(np.mean(np.subtract(*pairs))) if shared else None,
                paired_p(*pairs),
                headings[metric],
            )
        rows.append(Row(variant.name, baseline, cells, variant.fields))
    return rows


def markdown(rows: Sequence[Row], sweep: config_dict.ConfigDict, notes: Sequence[str] = ()) -> str:
    """The table for people, with the meaning of its columns and the notes below it."""
    several = len({row.baseline for row in rows}) > 1
    header, lines = ["variant", *(["baseline"] if several else [])], []
    with_paper = {metric: any(row.cells[metric].paper is not None for row in rows) for metric in sweep.metrics}
    for metric in sweep.metrics:
        header += [_escape(rows[0].cells[metric].heading), *(["paper"] if with_paper[metric] else []), "Δ", "p"]
    for row in rows:
        line = [_escape(row.variant)]
        if several:
            line.append("" if row.baseline == row.variant else _escape(row.baseline))
        for metric in sweep.metrics:
            cell = row.cells[metric]
            line.append(_mean(cell))
            if with_paper[metric]:
                line.append(_paper(cell.paper))
            if row.baseline == row.variant:
                line += ["baseline", ""]
            else:
                line += [EMPTY if cell.difference is None else f"{cell.difference:+.2f}", _p(cell.p)]
        lines.append(line)
    table = [header, ["---", *(["---"] if several else [])], *lines]
    table[1] += ["---:"] * (len(header) - len(table[1]))
    text = "\n".join(f"| {' | '.join(line)} |" for line in table)
    parts = [f"# {sweep.title}", f"{sweep.source}.", findings(rows, sweep), text, _legend(rows, sweep), *notes]
    return "\n\n".join(filter(None, parts)) + "\n"


def findings(rows: Sequence[Row], sweep: config_dict.ConfigDict) -> str:
    """A sentence for each metric: the best row, and the rows that differ from their baseline; empty without numbers."""
    return " ".join(filter(None, (_finding(rows, metric) for metric in sweep.metrics)))


def csv(rows: Sequence[Row], sweep: config_dict.ConfigDict) -> str:
    """The table for programs: a line for each variant and metric, with the value of every seed."""
    seeds = read_seeds(sweep)
    out = io.StringIO()
    writer = csv_lib.writer(out, lineterminator="\n")
    header = ["variant", "metric", "n", "mean", "std", "paper", "baseline", "difference", "p"]
    writer.writerow(header + [f"seed_{seed}" for seed in seeds])
    for row in rows:
        for metric, cell in row.cells.items():
            numbers = [cell.mean, cell.std, cell.paper]
            values = [cell.values.get(seed) for seed in seeds]
            name = metric if cell.heading == METRICS[metric] else cell.heading
            line = [row.variant, name, len(cell.values), *map(_number, numbers), row.baseline]
            writer.writerow(line + [_number(value) for value in (cell.difference, cell.p, *values)])
    return out.getvalue()


def plot(rows: Sequence[Row], sweep: config_dict.ConfigDict) -> Pictures:
    """The table as a picture, a line for each variant. The paper's values have panels of their own.

    Each metric has a panel of our seeds, their mean ± standard deviation and, at its right, the difference from the
    baseline. On one axis the paper's values would often be so far from ours that our differences could not be seen.

    Returns:
      The picture as "png" and as "svg". The same table gives the same bytes.
    """
    with_paper = [metric for metric in sweep.metrics if any(row.cells[metric].paper is not None for row in rows)]
    count = len(sweep.metrics) + len(with_paper)
    size = (1.8 + 0.05 * max(len(row.variant) for row in rows) + 3.2 * count, 1.9 + 0.3 * len(rows))
    with new_figure(size) as (figure, pictures):
        about = f"{what_rows_are(rows)} Δ: our mean difference from the baseline.".strip()
        lines = [f"{sweep.title} ({sweep.source})", *textwrap.wrap(about, int(13 * size[0]))]
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
        figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr, call-arg]
        panels = iter(figure.subplots(1, count, sharey=True, squeeze=False)[0])
        for number, metric in enumerate(sweep.metrics):
            panel = next(panels)
            if not number:
                panel.set_yticks(range(len(rows)), [row.variant for row in rows])
                panel.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
            _draw_ours(panel, rows, metric)
            if metric in with_paper:
                _draw_paper(next(panels), rows, metric)
        found = [panel.get_legend_handles_labels() for panel in figure.axes]
        by_label = {label: handle for part in found for handle, label in zip(*part, strict=True)}
        handles = {label: by_label[label] for label in (OURS, SEEDS, BASELINE, PAPER) if label in by_label}
        if handles:
            figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return pictures


def what_rows_are(rows: Sequence[Row]) -> str:
    """The fields of the config in which the rows differ, as a sentence; empty for a single row."""
    missing = object()
    fields = dict.fromkeys(field for row in rows for field in row.fields)
    differing = [name for name in fields if len({repr(row.fields.get(name, missing)) for row in rows}) > 1]
    more = len(differing) - MOST_FIELDS
    named = ", ".join(differing[:MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")
    return f"Rows differ in {named}." if differing else ""


def write(
    folder: Path,
    name: str,
    sweep: config_dict.ConfigDict,
    variants: Sequence[Variant],
    results: Results,
    notes: Sequence[str] = (),
    headings: Mapping[str, str] = METRICS,
) -> list[Row]:
    """Writes NAME.md, NAME.csv, NAME.png and NAME.svg into the folder, all or none.

    Args:
      folder: the folder, created if needed.
      name: of the files, without an ending.
      sweep: `config.sweep`.
      variants: the rows, in their order.
      results: the scores of the finished runs; a variant, a seed or a metric may be missing.
      notes: paragraphs for below the table, e.g. the command; empty ones are left out.
      headings: of the columns, by metric.

    Returns:
      The table's rows.

    Raises:
      UserError: when the folder cannot be written to.
    """
    rows = summarize(sweep, variants, results, headings)
    files: dict[str, str | bytes] = {"md": markdown(rows, sweep, notes), "csv": csv(rows, sweep), **plot(rows, sweep)}
    write_together(folder, {f"{name}.{kind}": content for kind, content in files.items()})
    return rows


def _finding(rows: Sequence[Row], metric: str) -> str:
    means = {row.variant: mean for row in rows if (mean := row.cells[metric].mean) is not None}
    if len(means) < 2:
        return ""
    best = max(means, key=lambda name: means[name])
    text = f"{_escape(rows[0].cells[metric].heading)}: {_escape(best)} has the highest mean, {means[best]:.2f}"
    differences = {row.variant: value for row in rows if (value := row.cells[metric].difference) is not None}
    if not differences:
        return f"{text}."
    clear = [row.variant for row in rows if (p := row.cells[metric].p) is not None and p < LEVEL]
    differ = "differs from its baseline" if len(clear) == 1 else "differ from their baseline"
    most = max(clear, key=lambda name: abs(differences[name]), default="")
    shown = f", {_escape(most)} most ({differences[most]:+.2f})" if most else ""
    return f"{text}; {len(clear) or 'none'} of {len(differences)} rows {differ} with p < {LEVEL}{shown}."


def _mean(cell: Cell) -> str:
    if cell.mean is None:
        return EMPTY
    spread = "" if cell.std is None else f" ± {cell.std:.2f}"
    return f"{cell.mean:.2f}{spread} ({len(cell.values)})"


def _paper(value: float | None) -> str:
    if value is None:
        return EMPTY
    return f"{value:.2f}".removesuffix("0")  # the papers have one or two decimals


def _escape(name: str) -> str:
    return name.replace("|", "\\|")


def _p(p: float | None) -> str:
    if p is None:
        return EMPTY
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _legend(rows: Sequence[Row], sweep: config_dict.ConfigDict) -> str:
    seeds = read_seeds(sweep)
    missing = [seed not in cell.values for row in rows for cell in row.cells.values() for seed in seeds]
    text = (
        f"Mean ± standard deviation (n - 1) over the seeds ({', '.join(map(str, seeds))}); "
        "in brackets, how many of them are finished. "
        "Δ: the mean difference from the baseline over the seeds that both have; "
        "p: that of a paired two-sided t-test over those seeds, not corrected for the number of rows."
    )
    if any(missing):
        text += f" {EMPTY}: no value; {sum(missing)} of {len(missing)} are missing."
    return text


def _draw_ours(panel: "Axes", rows: Sequence[Row], metric: str) -> None:
    """Our seeds, their mean, and the differences from the baseline as numbers."""
    _prepare(panel, f"{rows[0].cells[metric].heading}, ours")
    baselines = {row.baseline for row in rows}
    base = next((row.cells[metric].mean for row in rows if {row.variant} == baselines), None)
    if base is not None:
        panel.axvline(base, color="0.6", linestyle=":", linewidth=1, label=BASELINE)
    cells = [(place, row.cells[metric]) for place, row in enumerate(rows)]
    ours = [(place, cell.mean, cell.std or 0.0) for place, cell in cells if cell.mean is not None]
    if not ours:
        panel.set_xticks([])
        return
    seeds = [(value, place + 0.2) for place, cell in cells for value in cell.values.values()]
    panel.plot(*zip(*seeds, strict=True), "|", color="0.45", markersize=5, label=SEEDS)
    panel.errorbar(
        [mean for _, mean, _ in ours],
        [place for place, *_ in ours],
        xerr=[std for *_, std in ours],
        fmt="o",
        color=INK,
        markersize=4.5,
        elinewidth=1.2,
        capsize=2.5,
        label=OURS,
    )
    right: dict[str, Any] = {"transform": panel.get_yaxis_transform(), "va": "center", "fontsize": 8}
    for place, row in enumerate(rows):
        difference = row.cells[metric].difference
        if difference is not None:
            panel.text(1.01, place, f"{difference:+.2f}", **right)
    if any(cell.difference is not None for _, cell in cells):
        panel.text(1.01, -0.75, "our Δ", **right)


def _draw_paper(panel: "Axes", rows: Sequence[Row], metric: str) -> None:
    """The paper's values, on an axis of their own."""
    _prepare(panel, f"{rows[0].cells[metric].heading}, the paper's")
    theirs = [(row.cells[metric].paper, place) for place, row in enumerate(rows) if row.cells[metric].paper is not None]
    style: dict[str, Any] = {"color": PALE, "markerfacecolor": "white", "markersize": 4.5, "label": PAPER}
    panel.plot(*zip(*theirs, strict=True), "D", **style)


def _prepare(panel: "Axes", label: str) -> None:
    panel.set_axisbelow(True)
    panel.grid(axis="y", color="0.92")
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.margins(x=0.08)
    panel.locator_params(axis="x", nbins=5)
    panel.set_xlabel(label)
