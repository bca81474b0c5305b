"""Pictures of the geometry of models: SimCSE's Figures 3, F.1 and G.1, and SimCSE++'s Figure 1.

Each is drawn as PNG and as SVG. It needs no caption, and is legible in grey: lines differ in style and markers, not in
colour alone. The same numbers give the same bytes.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from simcse_jax.evaluation.geometry import GRID, GROUPS, Geometry
from simcse_jax.evaluation.plotting import COLOURS, LONGEST, Pictures, line_style, new_figure, shortened, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALIGNMENT = "alignment  E ‖f(x) − f(x⁺)‖²   (lower is better)"
UNIFORMITY = "uniformity  log E exp(−2 ‖f(x) − f(y)‖²)   (lower is better)"
SPEARMAN = "Spearman × 100 of cosines with the gold scores"
DISTANCE = "mean ‖f(x) − f(y)‖² of the pairs"
MOST_UNIFORM = -4.0  # of many dimensions: log exp(−2 × 2), all directions at right angles
PALE = "0.6"

Panels = Mapping[str, Mapping[str, Geometry]]  # the measures by the models' names, by the titles of the panels


def models(
    found: Mapping[str, Geometry], title: str, scores: Mapping[str, float] | None = None, score: str = ""
) -> Pictures:
    """Alignment against uniformity, a point for each model, coloured by its score (Figure 3).

    A single model has other points to be compared with: see `alone`.

    Args:
      scores: × 100, by the models' names; None: Spearman's correlation on the same pairs.
    """
    if len(found) == 1:
        return alone(*next(iter(found.items())), title)
    if scores is None:
        scores, score = {name: one.spearman for name, one in found.items()}, SPEARMAN
    names = list(found)
    x, y = (np.array([getattr(found[name], field) for name in names]) for field in ("uniformity", "alignment"))
    colours = np.array([scores[name] for name in names])
    labels = [f"{shortened(name)} ({score:.1f})" for name, score in zip(names, colours, strict=True)]
    size = (5.2 + 0.072 * max(map(len, labels)), max(4.6, 1.8 + 0.24 * len(names)))
    with new_figure(size) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"Alignment and uniformity on {title}", loc="left")
        low, high = math.floor(colours.min()), max(math.ceil(colours.max()), math.floor(colours.min()) + 1)
        style = {"cmap": "viridis", "vmin": low, "vmax": high, "s": 52, "edgecolors": "black", "linewidths": 0.8}
        points = axes.scatter(x, y, c=colours, zorder=3, **style)
        bar = figure.colorbar(points, ax=axes, location="bottom", aspect=40, shrink=0.9)
        bar.set_label("\n".join(_wrapped(f"{score}, in brackets too (higher is better)", 76)))
        alignment_and_uniformity(axes, x, y)
        bottom, top = axes.get_ylim()
        heights = spread((y - bottom) / (top - bottom), 0.22 / (0.62 * size[1]))
        for label, x_of, y_of, height in zip(labels, x, y, heights, strict=True):
            axes.annotate(
                label,
                (x_of, y_of),
                (1.03, height),
                textcoords="axes fraction",
                va="center",
                annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": PALE, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 4},
            )
    return pictures


def singular_values(panels: Panels, title: str) -> Pictures:
    """The singular values of the models' sentence embeddings, the largest one set to 1 (Figure F.1)."""
    most = max(map(len, panels.values()))
    smallest = min(_smallest(geometry.singular_values) for found in panels.values() for geometry in found.values())
    width = 6.2 if len(panels) == 1 else 4.8 * len(panels)
    with new_figure((width, 4.4 + 0.2 * most)) as (figure, pictures):
        figure.suptitle(f"Singular values of the embeddings of the sentences of {title}", fontsize=10)
        places = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (panel, found) in zip(places, panels.items(), strict=True):
            for number, (name, geometry) in enumerate(found.items()):
                values = geometry.singular_values
                axes.plot(
                    np.arange(1, len(values) + 1),
                    values,
                    markersize=4,
                    markevery=(0.02 * number, 0.15),
                    linewidth=1.4,
                    label=shortened(name),
                    **line_style(number),
                )
            axes.set_title(panel, loc="left")
            axes.set_yscale("log")
            axes.set_ylim(max(1e-4, 0.7 * smallest), 1.3)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, _: "")
            axes.set_xlabel("number of the singular value, the largest first")
            axes.grid(color="0.92")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, handlelength=3.5)
        places[0].set_ylabel("singular value / the largest   (flatter is more isotropic)")
    return pictures


def cosines(panels: Panels, title: str) -> Pictures:
    """The density of the cosine similarities of each gold group, a cell for each model (Figure G.1)."""
    every = [geometry for found in panels.values() for geometry in found.values()]
    densities = [group.density for geometry in every for group in geometry.groups.values()]
    shown = GRID[np.any([density > 0.02 * density.max() for density in densities if density is not None], axis=0)]
    columns = min(3 if len(panels) == 1 else 6, max(map(len, panels.values())))
    rows = [math.ceil(len(found) / columns) for found in panels.values()]
    width = 3.0 if columns > 1 else 5.0
    size = (0.6 + width * columns, 0.9 + 2.9 * sum(rows) + 0.3 * sum(map(bool, panels)))
    with new_figure(size) as (figure, pictures):
        figure.suptitle(f"Cosine similarities of the pairs of {title}, by gold score", fontsize=10)
        parts = figure.subfigures(len(panels), 1, height_ratios=rows, squeeze=False)[:, 0]
        for part, count, (panel, found) in zip(parts, rows, panels.items(), strict=True):
            if panel:
                part.suptitle(panel, fontsize=10, fontweight="bold")
            cells = part.subplots(count, columns, sharex=True, sharey=True, squeeze=False).ravel()
            for cell, (name, geometry) in zip(cells, found.items(), strict=False):
                _ridges(cell, geometry)
                cell.set_title("\n".join(_wrapped(name, 34 if columns > 1 else LONGEST)), fontsize=9)
            for cell in cells[len(found) :]:
                cell.remove()
            for cell in cells[max(0, len(found) - columns) : len(found)]:
                cell.tick_params(labelbottom=True)
            cells[0].set_xlim(max(-1, shown[0] - 0.02), min(1, shown[-1] + 0.02))
        figure.supxlabel("cosine similarity   (height: density, on each panel's own scale; tick: mean)", fontsize=9)
        figure.supylabel("gold score of the pairs (0 to 5)", fontsize=9)
    return pictures


def alone(name: str, geometry: Geometry, title: str) -> Pictures:
    """One model: its alignment among the distances of the gold groups, its uniformity between its two bounds.

    The mean squared distance of a group of normalized pairs is 2 − 2 × their mean cosine, on the scale of alignment.
    """
    # The highest group is left out: alignment is that of nearly the same pairs.
    rated = [(label, geometry.groups[label].mean) for label in GROUPS[:-1]]
    groups = [(label, 2 - 2 * mean) for label, mean in rated if mean is not None]
    with new_figure((6.4, 4.4)) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"{shortened(name)} on {title}: Spearman × 100 {geometry.spearman:.1f}", loc="left")
        axes.set_axisbelow(True)
        axes.grid(axis="y", color="0.92")
        low, high = min(MOST_UNIFORM, geometry.uniformity), 0.0
        axes.set_xlim(low - 0.25, high + 0.25)
        axes.set_ylim(0, 1.12 * max(geometry.alignment, *(distance for _, distance in groups), 0.1))
        for place, text, side in ((MOST_UNIFORM, "spread evenly", "left"), (0.0, "all in one place", "right")):
            axes.axvline(place, color="0.6", linestyle=":", linewidth=1)
            shift = 5 if side == "left" else -5
            style: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "top", "fontsize": 8}
            axes.annotate(text, (place, axes.get_ylim()[1]), (shift, -2), color="0.35", **style)
        x = geometry.uniformity
        axes.plot([x] * len(groups), [distance for _, distance in groups], "_", color="0.45", markersize=14)
        axes.plot([x], [geometry.alignment], "o", color=COLOURS[0], markersize=8, zorder=3)
        labels = [(distance, f"{distance:.2f}  pairs rated {label}", "0.35") for label, distance in groups]
        labels.append((geometry.alignment, f"{geometry.alignment:.2f}  alignment: pairs rated above 4", COLOURS[0]))
        top = axes.get_ylim()[1]
        to = 1 if x < (low + high) / 2 else -1
        heights = top * spread(np.array([distance for distance, *_ in labels]) / top, 0.055)
        at = x + 0.3 * to
        for (distance, text, colour), height in zip(labels, heights, strict=True):
            axes.plot([x + 0.1 * to, at - 0.04 * to], [distance, height], color=PALE, linewidth=0.7)
            axes.text(at, height, text, color=colour, fontsize=8, va="center", ha="left" if to > 0 else "right")
        axes.set_xlabel(UNIFORMITY)
        axes.set_ylabel(DISTANCE)
    return pictures


def alignment_and_uniformity(axes: "Axes", x: Float[np.ndarray, " M"], y: Float[np.ndarray, " M"]) -> None:
    """Titles, grid and limits of a plane whose points are at (x, y)."""
    axes.set_axisbelow(True)
    axes.grid(color="0.92")
    axes.set_xlabel(UNIFORMITY)
    axes.set_ylabel(ALIGNMENT)
    for values, set_limits in ((x, axes.set_xlim), (y, axes.set_ylim)):
        margin = 0.1 * (np.ptp(values) or max(0.1, 0.1 * abs(values[0])))
        set_limits(values.min() - margin, values.max() + margin)


def _smallest(values: np.ndarray) -> float:
    """The smallest singular value that is not zero up to rounding."""
    return float(values[values > 1e-6].min())


def _ridges(panel: "Axes", geometry: Geometry) -> None:
    """The densities of the groups above each other, the highest group on top."""
    highest = max((group.density.max() for group in geometry.groups.values() if group.density is not None), default=1.0)
    panel.set_yticks(range(len(GROUPS)), GROUPS)
    panel.set_ylim(-0.1, len(GROUPS))
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="x", color="0.92")
    panel.set_axisbelow(True)
    for place, group in enumerate(geometry.groups.values()):
        panel.axhline(place, color="0.8", linewidth=0.7, zorder=1)
        if group.density is None or group.mean is None:
            continue
        curve = place + 0.9 * group.density / highest
        panel.fill_between(GRID, place, curve, color=COLOURS[0], alpha=0.25, linewidth=0, zorder=2)
        panel.plot(GRID, curve, color=COLOURS[0], linewidth=1.0, zorder=3)
        panel.plot([group.mean] * 2, [place, place + 0.14], color="black", linewidth=1.4, zorder=4)


def _wrapped(text: str, width: int) -> list[str]:
    """At most three lines of at most `width` characters; a name without blanks is broken too."""
    import textwrap

    return textwrap.wrap(text, width)[:3]
