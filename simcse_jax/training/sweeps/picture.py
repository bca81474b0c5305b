"""The picture of a sweep's table."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcse_jax.config.sections import Section
from simcse_jax.evaluation.plotting import COLOURS, Pictures, new_figure, panels
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.summary import TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, SEEDS, PAPER, BASELINE = "mean ± std of our seeds", "one seed", "paper", "our baseline"  # in the legend
INK, PALE = COLOURS[:2]  # ours and the paper's; the shapes of their points differ too
MOST_FIELDS = 4  # that a picture names
MOST_PANELS = 4  # in a line
WIDEST = 10.6  # inches, below 1,600 pixels


def plot(rows: Sequence[TableRow], sweep: Section) -> Pictures:
    """The table as a picture: a panel for each metric, a line in it for each variant.

    A panel has our seeds, their mean ± standard deviation, and the paper's values on the same axis; at its right, our
    difference from the baseline. A metric that we have no value of has none, unless nothing of ours is there.
    """
    ours = [metric for metric in sweep.metrics if any(row.cells[metric].values for row in rows)]
    theirs = [metric for metric in sweep.metrics if any(row.cells[metric].paper for row in rows)]
    metrics = ours or theirs or list(sweep.metrics)[:1]
    fewest = range(min(MOST_PANELS - 1, len(metrics)), min(MOST_PANELS, len(metrics)) + 1)
    columns = min(fewest, key=lambda count: (-(-len(metrics) // count), -len(metrics) % count))
    names = [row.variant + " (quoted)" * row.quoted for row in rows]
    labels = 0.4 + 0.075 * max(map(len, names))
    lines = -(-len(metrics) // columns)
    width = min(WIDEST, max(6.0, labels + 3.2 * columns))
    with new_figure((width, 1.1 + lines * (0.9 + 0.3 * len(rows)))) as (figure, pictures):
        about = f"{describe_rows(rows)} Δ: our mean difference from the baseline.".strip()
        title = [f"{sweep.title} ({sweep.source})", *textwrap.wrap(about, int(13 * width))]
        figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10)
        figure.get_layout_engine().set(wspace=0.04)  # type: ignore[union-attr, call-arg]
        grid = panels(figure, len(metrics), columns, sharey=True)
        for panel, metric in zip(grid, metrics, strict=True):
            panel.set_yticks(range(len(rows)), names)
            panel.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
            _draw(panel, rows, metric)
            panel.locator_params(axis="x", nbins=4)
        handles_of_panels = [panel.get_legend_handles_labels() for panel in grid]
        by_label = {label: handle for part in handles_of_panels for handle, label in zip(*part, strict=True)}
        handles = {label: by_label[label] for label in (OURS, SEEDS, BASELINE, PAPER) if label in by_label}
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
    """Our seeds, their mean, the paper's values, and our differences from the baseline as numbers."""
    panel.set_axisbelow(True)
    panel.grid(axis="y", color="0.92")
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.margins(x=0.08)
    panel.set_xlabel(rows[0].cells[metric].heading)
    cells = [(place, row.cells[metric]) for place, row in enumerate(rows)]
    baselines = {row.baseline for row in rows if not row.quoted}
    base = next((row.cells[metric].mean for row in rows if {row.variant} == baselines), None)
    if base is not None:
        panel.axvline(base, color="0.6", linestyle=":", linewidth=1, label=BASELINE)
    if theirs := [(cell.paper, place + 0.16) for place, cell in cells if cell.paper is not None]:
        style: dict[str, Any] = {"color": PALE, "markerfacecolor": "white", "markersize": 4.5, "label": PAPER}
        panel.plot(*zip(*theirs, strict=True), "D", **style)
    ours = [(place - 0.12, cell.mean, cell.std or 0.0) for place, cell in cells if cell.mean is not None]
    if ours:
        seeds = [(value, place - 0.12) for place, cell in cells for value in cell.values.values()]
        panel.plot(*zip(*seeds, strict=True), "|", color="0.45", markersize=6, label=SEEDS)
        places, means, deviations = zip(*ours, strict=True)
        style = {"color": INK, "markersize": 4.5, "elinewidth": 1.2, "capsize": 2.5, "label": OURS}
        panel.errorbar(means, places, xerr=deviations, fmt="o", **style)
    if not ours and not theirs:
        panel.text(0.5, 0.5, "no value", transform=panel.transAxes, ha="center", va="center", color="0.5")
    right: dict[str, Any] = {"transform": panel.get_yaxis_transform(), "va": "center", "fontsize": 8}
    differences = [(place, cell.difference) for place, cell in cells if cell.difference is not None]
    for place, difference in differences:
        panel.text(1.01, place, f"{difference:+.{METRICS[metric].decimals}f}", **right)
    if differences:
        panel.text(1.01, -0.75, "our Δ", **right)
