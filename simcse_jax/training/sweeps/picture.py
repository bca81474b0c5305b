"""The picture of a sweep's table."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcse_jax.config.sections import Section
from simcse_jax.evaluation.plotting import COLOURS, Pictures, add_legend, new_figure, panels
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.summary import TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PALE = COLOURS[:2]  # ours and the paper's; the shapes of their points differ too
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
    names = [row.variant + " (quoted)" * row.quoted for row in rows]
    columns = min(MOST_PANELS, len(metrics))
    lines = -(-len(metrics) // columns)
    width = min(WIDEST, max(6.0, 0.4 + 0.075 * max(map(len, names)) + 3.2 * columns))
    with new_figure((width, 1.1 + lines * (0.9 + 0.3 * len(rows)))) as (figure, pictures):
        figure.suptitle(f"{sweep.title} ({sweep.source})", x=0.01, ha="left", fontsize=10)
        for panel, metric in zip(panels(figure, len(metrics), columns, sharey=True), metrics, strict=True):
            panel.set_yticks(range(len(rows)), names)
            panel.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
            _draw(panel, rows, metric)
        if ours or theirs:
            add_legend(figure)
    return pictures


def _draw(panel: "Axes", rows: Sequence[TableRow], metric: str) -> None:
    """Our seeds, their mean, the paper's values, and our differences from the baseline as numbers."""
    panel.set_axisbelow(True)
    panel.grid(axis="y", color="0.92")
    panel.margins(x=0.08)
    panel.set_xlabel(rows[0].cells[metric].heading)
    panel.locator_params(axis="x", nbins=4)
    cells = [(place, row.cells[metric]) for place, row in enumerate(rows)]
    style: dict[str, Any]
    if theirs := [(cell.paper, place + 0.16) for place, cell in cells if cell.paper is not None]:
        style = {"color": PALE, "markerfacecolor": "white", "markersize": 4.5, "label": "paper"}
        panel.plot(*zip(*theirs, strict=True), "D", **style)
    if ours := [(place - 0.12, cell.mean, cell.std or 0.0) for place, cell in cells if cell.mean is not None]:
        seeds = [(value, place - 0.12) for place, cell in cells for value in cell.values.values()]
        panel.plot(*zip(*seeds, strict=True), "|", color="0.45", markersize=6, label="one seed")
        places, means, deviations = zip(*ours, strict=True)
        style = {"color": INK, "markersize": 4.5, "elinewidth": 1.2, "capsize": 2.5, "label": "mean ± std of our seeds"}
        panel.errorbar(means, places, xerr=deviations, fmt="o", **style)
    differences = {place: cell.difference for place, cell in cells if cell.difference is not None}
    texts = {place: f"{difference:+.{METRICS[metric].decimals}f}" for place, difference in differences.items()}
    for place, text in itertools.chain(texts.items(), [(-0.75, "our Δ")] * bool(texts)):
        panel.text(1.01, place, text, transform=panel.get_yaxis_transform(), va="center", fontsize=8)
