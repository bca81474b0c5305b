"""Pictures of the geometry of models: SimCSE's Figures 2, 3, F.1 and G.1, and SimCSE++'s Figure 1."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from simcse_jax.evaluation import spectrum_pictures
from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.geometry import GRID, GROUPS, Geometry
from simcse_jax.evaluation.plotting import (
    COLOURS,
    LONGEST,
    Pictures,
    add_grid,
    add_legend,
    new_figure,
    shortened,
    styles,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALIGNMENT = "alignment  E ‖f(x) − f(x⁺)‖²   (lower is better)"
UNIFORMITY = "uniformity  log E exp(−2 ‖f(x) − f(y)‖²)   (lower is better)"
SPEARMAN = "Spearman × 100 of cosines with the gold scores"
PALE = "0.6"
Panels = Mapping[str, Mapping[str, Geometry]]  # the measures by the models' names, by the titles of the panels
MANY = 12  # places of a run; more have small markers
LABELS_APART, ARROWS_APART = 24, 50  # points


def models(
    by_model: Mapping[str, Geometry], title: str, scores: Mapping[str, float] | None = None, score: str = ""
) -> Pictures:
    """Alignment against uniformity, a point for each model (Figure 3), coloured by its score, × 100.

    Without scores, by Spearman's correlation on the same pairs.
    """
    if scores is None:
        scores, score = {name: geometry.spearman for name, geometry in by_model.items()}, SPEARMAN
    names = list(by_model)
    x, y = (np.array([getattr(by_model[name], field) for name in names]) for field in ("uniformity", "alignment"))
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
        bar.set_label(_wrapped(f"{score}, in brackets too (higher is better)", 76))
        _name_axes(axes, x, y)
        # The labels are in the order of the points, at the same distances between the lowest point and the highest.
        heights = np.linspace(1 / 12, 11 / 12, len(y)) if len(y) > 1 else [0.5]
        for place, height in zip(np.argsort(y, kind="stable"), heights, strict=True):
            axes.annotate(
                labels[place],
                (x[place], y[place]),
                (1.03, height),
                textcoords="axes fraction",
                va="center",
                annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": PALE, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 4},
            )
    return pictures


def singular_values(panels: Panels, title: str) -> Pictures:
    """The singular values of the models' sentence embeddings (Figure F.1)."""
    values = {
        panel: {name: geometry.spectrum.singular_values for name, geometry in by_model.items()}
        for panel, by_model in panels.items()
    }
    title = f"Singular values of the embeddings of the sentences of {title}"
    return spectrum_pictures.singular_values(values, title)


def cosines(panels: Panels, title: str) -> Pictures:
    """The density of the cosine similarities of each gold group, a cell for each model (Figure G.1)."""
    geometries = [geometry for by_model in panels.values() for geometry in by_model.values()]
    densities = [group.density for geometry in geometries for group in geometry.groups.values()]
    shown = GRID[np.any([density > 0.02 * density.max() for density in densities if density is not None], axis=0)]
    columns = min(3 if len(panels) == 1 else 6, max(map(len, panels.values())))
    rows = [math.ceil(len(by_model) / columns) for by_model in panels.values()]
    width = 3.0 if columns > 1 else 5.0
    size = (0.6 + width * columns, 0.9 + 2.9 * sum(rows) + 0.3 * sum(map(bool, panels)))
    with new_figure(size) as (figure, pictures):
        figure.suptitle(f"Cosine similarities of the pairs of {title}, by gold score", fontsize=10)
        parts = figure.subfigures(len(panels), 1, height_ratios=rows, squeeze=False)[:, 0]
        for part, count, (panel, by_model) in zip(parts, rows, panels.items(), strict=True):
            if panel:
                part.suptitle(panel, fontsize=10, fontweight="bold")
            cells = part.subplots(count, columns, sharex=True, sharey=True, squeeze=False).ravel()
            for cell, (name, geometry) in zip(cells, by_model.items(), strict=False):
                _ridges(cell, geometry)
                cell.set_title(_wrapped(name, 34 if columns > 1 else LONGEST), fontsize=9)
            for cell in cells[len(by_model) :]:
                cell.remove()
            for cell in cells[max(0, len(by_model) - columns) : len(by_model)]:
                cell.tick_params(labelbottom=True)
            cells[0].set_xlim(max(-1, shown[0] - 0.02), min(1, shown[-1] + 0.02))
        figure.supxlabel("cosine similarity   (height: density, on each panel's own scale; tick: mean)", fontsize=9)
        figure.supylabel("gold score of the pairs (0 to 5)", fontsize=9)
    return pictures


def _name_axes(axes: "Axes", x: Float[np.ndarray, " M"], y: Float[np.ndarray, " M"]) -> None:
    """Titles, grid and limits of a plane whose points are at (x, y)."""
    add_grid(axes)
    axes.set_xlabel(UNIFORMITY)
    axes.set_ylabel(ALIGNMENT)
    for values, set_limits in ((x, axes.set_xlim), (y, axes.set_ylim)):
        margin = 0.1 * np.ptp(values) or max(0.1, 0.1 * abs(values[0]))
        set_limits(values.min() - margin, values.max() + margin)


def _ridges(panel: "Axes", geometry: Geometry) -> None:
    """The densities of the groups above each other, the highest group on top."""
    highest = max((group.density.max() for group in geometry.groups.values() if group.density is not None), default=1.0)
    panel.set_yticks(range(len(GROUPS)), GROUPS)
    panel.set_ylim(-0.1, len(GROUPS))
    panel.tick_params(axis="y", length=0)
    add_grid(panel, axis="x")
    for place, group in enumerate(geometry.groups.values()):
        panel.axhline(place, color="0.8", linewidth=0.7, zorder=1)
        if group.density is None or group.mean is None:
            continue
        curve = place + 0.9 * group.density / highest
        panel.fill_between(GRID, place, curve, color=COLOURS[0], alpha=0.25, linewidth=0, zorder=2)
        panel.plot(GRID, curve, color=COLOURS[0], linewidth=1.0, zorder=3)
        panel.plot([group.mean] * 2, [place, place + 0.14], color="black", linewidth=1.4, zorder=4)


def _wrapped(text: str, width: int) -> str:
    """At most three lines of at most `width` characters; a name without blanks is broken too."""
    return "\n".join(textwrap.wrap(text, width)[:3])


def part(facts: Mapping[str, Any], drawn: Mapping[str, Pictures]) -> str:
    """The part of the report with the pictures, and the models' numbers."""
    sections = [page.picture_section(name, drawn, wide=name == "cosines") for name in page.TEXTS if name in drawn]
    if by_model := facts.get("models"):
        fields = ("alignment", "uniformity", "spearman")
        rows = [[label, *(f"{model[field]:.3f}" for field in fields)] for label, model in by_model.items()]
        numbers = page.table("The models", ["", "alignment", "uniformity", "Spearman × 100"], rows)
        sections.append(PageSection("The models in numbers", "geometry.json has all of them.", numbers))
    about = f"Measured on {facts['data']}." if "data" in facts else "What the runs recorded while they trained."
    return page.part("geometry", "Alignment, uniformity and the spectrum", [about], sections)


class PlanePoint(NamedTuple):
    """The place of a run at a step."""

    step: int
    alignment: float
    uniformity: float
    geometry: Geometry | None = None  # None for what the run recorded

    def to_json(self) -> dict[str, float]:
        """The numbers, for JSON."""
        return {"step": self.step, "alignment": round(self.alignment, 6), "uniformity": round(self.uniformity, 6)}


def mean_of(seeds: Sequence[Mapping[int, Mapping[str, float]]]) -> list[PlanePoint]:
    """The mean place of runs that differ in their seed, at the steps that all of them recorded."""

    def mean(step: int, field: str) -> float:
        return float(np.mean([points[step][field] for points in seeds]))

    steps = sorted(set.intersection(*map(set, seeds)))
    return [PlanePoint(step, mean(step, "alignment"), mean(step, "uniformity")) for step in steps]


def runs(by_run: Mapping[str, Sequence[PlanePoint]], title: str) -> Pictures:
    """Alignment against uniformity over the steps of runs, with arrows along the training direction (Figure 2)."""
    looks = styles(by_run).values()
    paths = [np.array([(point.uniformity, point.alignment) for point in points]) for points in by_run.values()]
    with new_figure((6.6, 4.7)) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"Alignment and uniformity on {title}, by training step", loc="left")
        for name, style, path in zip(by_run, looks, paths, strict=True):
            axes.plot(*path.T, markersize=4.5 if len(path) <= MANY else 2.2, label=shortened(name), zorder=3, **style)
            axes.plot(*path[:1].T, markersize=5.5, zorder=4, **style | {"markerfacecolor": "white"})
        _name_axes(axes, *np.concatenate(paths).T)
        add_legend(figure)
        figure.canvas.draw()  # the layout is known from here on
        figure.set_layout_engine("none")
        lines = [
            (points, path, style["color"]) for points, path, style in zip(by_run.values(), paths, looks, strict=True)
        ]
        places = [(line, place) for line in lines for place in dict.fromkeys((len(line[0]) - 1, 0))]  # the ends first
        places += [(line, place) for line in lines for place in range(1, len(line[0]) - 1)]
        labelled = _Apart(axes, LABELS_APART)
        for (points, path, colour), place in places:
            if labelled.takes(path[place]):  # the start of runs of the same model has one label
                is_start = place == points[0].step == 0
                text = f"step {points[place].step}" if place == 0 else str(points[place].step)
                _label(axes, text, path[max(0, place - 1) : place + 2], path[place], "0.2" if is_start else colour)
        for _, path, colour in lines:
            _point_along(axes, path, colour)
    return pictures


def _label(axes: "Axes", text: str, around: np.ndarray, place: np.ndarray, colour: str) -> None:
    """A label beside a line, above it; the line's direction is that from the first point around it to the last."""
    pixels = axes.transData.transform(around)
    x, y = pixels[-1] - pixels[0]
    beside = 11 * np.array([-y, x]) * np.sign(x or 1) / (np.hypot(x, y) or 1)
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "zorder": 5}
    axes.annotate(text, (place[0], place[1]), tuple(beside), textcoords="offset points", color=colour, **style)


def _point_along(axes: "Axes", path: np.ndarray, colour: str) -> None:
    """Arrowheads on a line, in the direction of training, in the middle of its longest segments."""
    arrow = {"arrowstyle": "-|>,head_length=1.1,head_width=0.3", "edgecolor": "white", "linewidth": 0.5}
    pointed, lengths = _Apart(axes, ARROWS_APART), np.hypot(*np.diff(axes.transData.transform(path), axis=0).T)
    for start in np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]:
        middle = path[start : start + 2].mean(axis=0)
        if pointed.takes(middle):
            tail = middle + 1e-3 * (path[start] - middle)
            style = arrow | {"facecolor": colour, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", middle, tail, arrowprops=style, zorder=4)


class _Apart:
    """Places of a figure that are at least so many points from each other."""

    def __init__(self, axes: "Axes", gap: float):
        self.axes, self.gap = axes, gap * axes.figure.dpi / 72
        self.taken: list[np.ndarray] = []  # pixels

    def takes(self, place: np.ndarray) -> bool:
        """Whether a place is free; it is not afterwards."""
        pixel = self.axes.transData.transform(place)
        free = all(np.linalg.norm(pixel - other) >= self.gap for other in self.taken)
        self.taken += [pixel] * free
        return free
