"""The picture of a sweep's table."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from simcse_jax.config.sections import Section
from simcse_jax.evaluation.plotting import COLOURS, Pictures, new_figure, panels
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.summary import TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEAN, SEEDS, PAPER, BASELINE = "mean ± std of the seeds", "one seed", "paper", "baseline"  # in the legend
PAIRED = "mean difference, 95% interval"
INK, PALE = COLOURS[:2]  # what was measured and the paper's; the shapes of their points differ too
MOST_FIELDS = 4  # that a picture names
MOST_PANELS = 4  # in a line
WIDEST = 10.6  # inches, below 1,600 pixels


def plot(rows: Sequence[TableRow], sweep: Section) -> Pictures:
    """The table as a picture: a line for each variant, and for each metric a panel or two.

    One has the seeds, their mean ± standard deviation, and the paper's values on the same axis. The other has the
    differences from the baseline, seed by seed, and their mean with its 95% interval (Student's t). A metric that was
    not measured has none, unless nothing was.
    """
    ours = [metric for metric in sweep.metrics if any(row.cells[metric].values for row in rows)]
    theirs = [metric for metric in sweep.metrics if any(row.cells[metric].paper for row in rows)]
    metrics = ours or theirs or list(sweep.metrics)[:1]
    drawn = [
        (metric, draw)
        for metric in metrics
        for draw in (_draw, _draw_differences)
        if draw is _draw or any(row.cells[metric].differences for row in rows)
    ]
    fewest = range(min(MOST_PANELS - 1, len(drawn)), min(MOST_PANELS, len(drawn)) + 1)
    columns = min(fewest, key=lambda count: (-(-len(drawn) // count), -len(drawn) % count))
    names = [row.label for row in rows]
    labels = 0.4 + 0.075 * max(map(len, names))
    lines = -(-len(drawn) // columns)
    width = min(WIDEST, max(6.0, labels + 3.2 * columns))
    with new_figure((width, 1.1 + lines * (0.9 + 0.3 * len(rows)))) as (figure, pictures):
        paired = " Δ: difference from the baseline, by pairs of the same seed." * (len(drawn) > len(metrics))
        about = f"{describe_rows(rows)}{paired}".strip()
        title = [f"{sweep.title} ({sweep.source})", *textwrap.wrap(about, int(13 * width))]
        figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10)
        figure.get_layout_engine().set(wspace=0.04)  # type: ignore[union-attr, call-arg]
        grid = panels(figure, len(drawn), columns, sharey=True)
        for panel, (metric, draw) in zip(grid, drawn, strict=True):
            panel.set_yticks(range(len(rows)), names)
            panel.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
            panel.set_axisbelow(True)
            panel.grid(axis="y", color="0.92")
            panel.tick_params(axis="y", length=0)
            panel.spines["left"].set_visible(False)
            panel.margins(x=0.08)
            draw(panel, rows, metric)
            panel.locator_params(axis="x", nbins=4)
        handles_of_panels = [panel.get_legend_handles_labels() for panel in grid]
        by_label = {label: handle for part in handles_of_panels for handle, label in zip(*part, strict=True)}
        handles = {label: by_label[label] for label in (MEAN, SEEDS, PAIRED, BASELINE, PAPER) if label in by_label}
        if handles:
            figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return pictures


def describe_rows(rows: Sequence[TableRow]) -> str:
    """The fields of the config in which the rows differ, as a sentence; empty for a single row."""
    missing = object()
    rows = [row for row in rows if not row.quoted]
    fields = dict.fromkeys(field for row in rows for field in row.fields)
    differing = [name for name in fields if len({repr(row.fields.get(name, missing)) for row in rows}) > 1]
    more = len(differing) - MOST_FIELDS
    named = ", ".join(differing[:MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")
    return f"Rows differ in {named}." if differing else ""


def _draw(panel: "Axes", rows: Sequence[TableRow], metric: str) -> None:
    """The seeds, their mean, and the paper's values."""
    panel.set_xlabel(rows[0].cells[metric].heading)
    cells = [(place, row.cells[metric]) for place, row in enumerate(rows)]
    baselines = {row.baseline for row in rows if not row.quoted}
    base = next((row.cells[metric].mean for row in rows if {row.variant} == baselines), None)
    if base is not None:
        panel.axvline(base, color="0.6", linestyle=":", linewidth=1, label=BASELINE)
    if theirs := [(cell.paper, place + 0.16) for place, cell in cells if cell.paper is not None]:
        style: dict[str, Any] = {"color": PALE, "markerfacecolor": "white", "markersize": 4.5, "label": PAPER}
        panel.plot(*zip(*theirs, strict=True), "D", **style)
    ours = [(place - 0.12, cell.mean, cell.std or np.nan) for place, cell in cells if cell.mean is not None]
    if ours:
        _draw_seeds(panel, [(place, cell.values) for place, cell in cells])
        _draw_means(panel, ours, MEAN)
    if not ours and not theirs:
        panel.text(0.5, 0.5, "no value", transform=panel.transAxes, ha="center", va="center", color="0.5")


def _draw_differences(panel: "Axes", rows: Sequence[TableRow], metric: str) -> None:
    """The differences from the baseline with the same seed, their mean and its interval, and the mean as a number."""
    panel.set_xlabel(f"Δ {rows[0].cells[metric].heading}")
    panel.axvline(0, color="0.6", linestyle=":", linewidth=1, label=BASELINE)
    cells = [(place, row.cells[metric].differences) for place, row in enumerate(rows) if row.cells[metric].differences]
    _draw_seeds(panel, cells)
    means = []
    for place, differences in cells:
        values, mean = [*differences.values()], float(np.mean([*differences.values()]))
        several = len(values) > 1  # one seed has no interval
        half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5 if several else np.nan
        means.append((place - 0.12, mean, float(half)))
        number = f"{mean:+.{METRICS[metric].decimals}f}"
        panel.text(1.01, place, number, transform=panel.get_yaxis_transform(), va="center", fontsize=8)
    _draw_means(panel, means, PAIRED)


def _draw_seeds(panel: "Axes", cells: Sequence[tuple[int, Mapping[int, float]]]) -> None:
    seeds = [(value, place - 0.12) for place, values in cells for value in values.values()]
    panel.plot(*zip(*seeds, strict=True), "|", color="0.45", markersize=6, label=SEEDS)


def _draw_means(panel: "Axes", means: Sequence[tuple[float, float, float]], label: str) -> None:
    """Points with bars: (place, mean, half of the bar)."""
    places, centres, halves = zip(*means, strict=True)
    marker = "o" if label == MEAN else "s"
    style: dict[str, Any] = {"color": INK, "markersize": 4.5, "elinewidth": 1.2, "capsize": 2.5, "label": label}
    panel.errorbar(centres, places, xerr=halves, fmt=marker, **style)
