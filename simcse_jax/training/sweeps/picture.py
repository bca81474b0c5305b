"""The picture of a sweep's table."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcse_jax.config.sections import Section
from simcse_jax.evaluation.plotting import COLOURS, Pictures, new_figure
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.summary import MOST_TOGETHER, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, SEEDS, PAPER, BASELINE = "mean ± std of our seeds", "one seed", "paper", "our baseline"  # in the legend
INK, PALE = COLOURS[:2]  # ours and the paper's; the shapes of their points differ too
MOST_FIELDS = 4  # that a picture names
MOST_PANELS = 8  # in a line, where there are many

# Panels next to each other: "ours", "paper" or "" for an empty one, the metric, the rows.
Line = list[tuple[str, str, Sequence[Row]]]


def plot(rows: Sequence[Row], sweep: Section) -> Pictures:
    """The table as a picture, a line for each variant. The paper's values have panels of their own.

    Each metric has a panel of our seeds, their mean ± standard deviation and, at its right, the difference from the
    baseline. On one axis the paper's values would often be so far from ours that our differences could not be seen:
    they stand next to ours, or below them where there are many metrics. There rows that are quoted from the paper
    stand among its values alone.

    Returns:
      The picture as "png" and as "svg". The same table gives the same bytes.
    """
    lines = arrange(rows, sweep)
    longest, columns = max(len(row.variant) for row in rows), max(map(len, lines))
    panel_width = 3.2 if len(sweep.metrics) <= MOST_TOGETHER else 2.0
    heights = [0.9 + 0.3 * len(line[0][2]) for line in lines]
    size = (1.8 + 0.05 * longest + panel_width * columns, 1.0 + sum(heights))
    with new_figure(size) as (figure, pictures):
        about = f"{what_rows_are(rows)} Δ: our mean difference from the baseline.".strip()
        title = [f"{sweep.title} ({sweep.source})", *textwrap.wrap(about, int(13 * size[0]))]
        figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10)
        figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr, call-arg]
        grid = figure.subplots(len(lines), columns, sharey="row", squeeze=False, height_ratios=heights)
        for panels, line in zip(grid, lines, strict=True):
            shown = line[0][2]
            names = [row.variant + " (quoted)" * row.quoted for row in shown]
            panels[0].set_yticks(range(len(shown)), names)
            panels[0].set_ylim(len(shown) - 0.5, -0.5)  # the first row on top
            for panel, (kind, metric, _) in zip(panels, line, strict=False):
                {"ours": _draw_ours, "paper": _draw_paper, "": _leave_empty}[kind](panel, shown, metric)
                panel.locator_params(axis="x", nbins=5 if panel_width > 2 else 3)
            for panel in panels[len(line) :]:
                panel.remove()
        found = [panel.get_legend_handles_labels() for panel in figure.axes]
        by_label = {label: handle for part in found for handle, label in zip(*part, strict=True)}
        handles = {label: by_label[label] for label in (OURS, SEEDS, BASELINE, PAPER) if label in by_label}
        if handles:
            figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return pictures


def arrange(rows: Sequence[Row], sweep: Section) -> list[Line]:
    """The panels, line by line."""
    metrics = list(sweep.metrics)
    with_paper = [metric for metric in metrics if any(row.cells[metric].paper is not None for row in rows)]
    if len(metrics) <= MOST_TOGETHER:
        return [
            [
                (kind, metric, rows)
                for metric in metrics
                for kind in ("ours", "paper")
                if kind == "ours" or metric in with_paper
            ]
        ]
    own = [row for row in rows if not row.quoted]
    lines: list[Line] = []
    for start in range(0, len(metrics), MOST_PANELS):
        block = metrics[start : start + MOST_PANELS]
        lines.append([("ours", metric, own) for metric in block if own])
        printed = [row for row in rows if any(row.cells[metric].paper is not None for metric in block)]
        if printed:  # each below ours
            lines.append([("paper" if metric in with_paper else "", metric, printed) for metric in block])
    return [line for line in lines if line]


def what_rows_are(rows: Sequence[Row]) -> str:
    """The fields of the config in which the rows differ, as a sentence; empty for a single row."""
    missing = object()
    rows = [row for row in rows if not row.quoted]
    fields = dict.fromkeys(field for row in rows for field in row.fields)
    differing = [name for name in fields if len({repr(row.fields.get(name, missing)) for row in rows}) > 1]
    more = len(differing) - MOST_FIELDS
    named = ", ".join(differing[:MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")
    return f"Rows differ in {named}." if differing else ""


def _draw_ours(panel: "Axes", rows: Sequence[Row], metric: str) -> None:
    """Our seeds, their mean, and the differences from the baseline as numbers."""
    _prepare(panel, f"{rows[0].cells[metric].heading}, ours")
    baselines = {row.baseline for row in rows if not row.quoted}
    base = next((row.cells[metric].mean for row in rows if {row.variant} == baselines), None)
    if base is not None:
        panel.axvline(base, color="0.6", linestyle=":", linewidth=1, label=BASELINE)
    cells = [(place, row.cells[metric]) for place, row in enumerate(rows)]
    ours = [(place, cell.mean, cell.std or 0.0) for place, cell in cells if cell.mean is not None]
    if not ours:
        panel.set_xticks([])
        panel.text(0.5, 0.5, "no value", transform=panel.transAxes, ha="center", va="center", color="0.5")
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
            panel.text(1.01, place, f"{difference:+.{METRICS[metric].decimals}f}", **right)
    if any(cell.difference is not None for _, cell in cells):
        panel.text(1.01, -0.75, "our Δ", **right)


def _draw_paper(panel: "Axes", rows: Sequence[Row], metric: str) -> None:
    """The paper's values, on an axis of their own."""
    _prepare(panel, f"{rows[0].cells[metric].heading}, the paper's")
    theirs = [(row.cells[metric].paper, place) for place, row in enumerate(rows) if row.cells[metric].paper is not None]
    style: dict[str, Any] = {"color": PALE, "markerfacecolor": "white", "markersize": 4.5, "label": PAPER}
    panel.plot(*zip(*theirs, strict=True), "D", **style)


def _leave_empty(panel: "Axes", rows: Sequence[Row], metric: str) -> None:
    """Shows nothing but the names of rows, if it is the first panel of its line."""
    panel.set_xticks([])
    panel.tick_params(axis="y", length=0)
    panel.spines[["left", "bottom"]].set_visible(False)


def _prepare(panel: "Axes", label: str) -> None:
    panel.set_axisbelow(True)
    panel.grid(axis="y", color="0.92")
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.margins(x=0.08)
    panel.set_xlabel(label)
