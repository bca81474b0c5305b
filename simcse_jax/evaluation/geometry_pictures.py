"""Pictures of the geometry of models: SimCSE's Figures 3, F.1 and G.1, and SimCSE++'s Figure 1.

Each is drawn as PNG and as SVG. It needs no caption, and is legible in grey: lines differ in style and markers, not in
colour alone. The same numbers give the same bytes.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.geometry import GRID, GROUPS, Geometry
from simcse_jax.evaluation.plotting import (
    COLOURS,
    LONGEST,
    SMALLEST,
    Pictures,
    add_grid,
    new_figure,
    shortened,
    spread,
    styles,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

ALIGNMENT = "alignment  E ‖f(x) − f(x⁺)‖²   (lower is better)"
UNIFORMITY = "uniformity  log E exp(−2 ‖f(x) − f(y)‖²)   (lower is better)"
SPEARMAN = "Spearman × 100 of cosines with the gold scores"
DISTANCE = "mean ‖f(x) − f(y)‖² of the pairs"
MOST_UNIFORM = -4.0  # of many dimensions: log exp(−2 × 2), all directions at right angles
PALE = "0.6"
Panels = Mapping[str, Mapping[str, Geometry]]  # the measures by the models' names, by the titles of the panels
# Places for the label of a point: right, left, above, below, and between.
AROUND = ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))
BETWEEN_ARROWS = 70  # points of a line; shorter lines have one arrow
MANY = 12  # places of a run; more have small markers
APART = 24  # points between labelled steps of a run


def models(
    by_model: Mapping[str, Geometry], title: str, scores: Mapping[str, float] | None = None, score: str = ""
) -> Pictures:
    """Alignment against uniformity, a point for each model, coloured by its score (Figure 3).

    A single model is drawn by `alone`.

    Args:
      scores: × 100, by the models' names; None: Spearman's correlation on the same pairs.
    """
    if len(by_model) == 1:
        return alone(*next(iter(by_model.items())), title)
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
    """The singular values of the models' sentence embeddings, the largest one set to 1 (Figure F.1).

    Those below `SMALLEST` are directions that hardly any sentence uses: they are counted in the legend.
    """
    most = max(map(len, panels.values()))
    width = 6.2 if len(panels) == 1 else 4.8 * len(panels)
    colours = styles(list(dict.fromkeys(name for by_model in panels.values() for name in by_model)))
    with new_figure((width, 4.6 + 0.2 * most)) as (figure, pictures):
        figure.suptitle(f"Singular values of the embeddings of the sentences of {title}", fontsize=10)
        places = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (panel, by_model) in zip(places, panels.items(), strict=True):
            for number, (name, geometry) in enumerate(by_model.items()):
                all_values = geometry.spectrum.singular_values
                values = all_values[all_values >= SMALLEST]
                left_out = len(all_values) - len(values)
                axes.plot(
                    np.arange(1, len(values) + 1),
                    values,
                    markersize=4,
                    markevery=(0.02 * number, 0.15),
                    label=shortened(name) + f"  ({left_out} below {SMALLEST:g} not drawn)" * (left_out > 0),
                    **colours[name],
                )
            axes.set_title(panel, loc="left")
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, _: "")
            axes.set_xlabel("number of the singular value, the largest first")
            axes.grid(color="0.92")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, handlelength=3.5)
        places[0].set_ylabel("singular value / the largest   (flatter is more isotropic)")
    return pictures


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
                cell.set_title("\n".join(_wrapped(name, 34 if columns > 1 else LONGEST)), fontsize=9)
            for cell in cells[len(by_model) :]:
                cell.remove()
            for cell in cells[max(0, len(by_model) - columns) : len(by_model)]:
                cell.tick_params(labelbottom=True)
            cells[0].set_xlim(max(-1, shown[0] - 0.02), min(1, shown[-1] + 0.02))
        figure.supxlabel("cosine similarity   (height: density, on each panel's own scale; tick: mean)", fontsize=9)
        figure.supylabel("gold score of the pairs (0 to 5)", fontsize=9)
    return pictures


def alone(name: str, geometry: Geometry, title: str) -> Pictures:
    """A picture of one model: its alignment among the distances of the gold groups, its uniformity between two bounds.

    The mean squared distance of a group of normalized pairs is 2 − 2 × their mean cosine, on the scale of alignment.
    """
    # The highest group is left out: alignment is that of nearly the same pairs.
    rated = [(label, geometry.groups[label].mean) for label in GROUPS[:-1]]
    groups = [(label, 2 - 2 * mean) for label, mean in rated if mean is not None]
    with new_figure((6.4, 4.4)) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"{shortened(name)} on {title}: Spearman × 100 {geometry.spearman:.1f}", loc="left")
        add_grid(axes, axis="y")
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
    add_grid(axes)
    axes.set_xlabel(UNIFORMITY)
    axes.set_ylabel(ALIGNMENT)
    for values, set_limits in ((x, axes.set_xlim), (y, axes.set_ylim)):
        margin = 0.1 * (np.ptp(values) or max(0.1, 0.1 * abs(values[0])))
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


def _wrapped(text: str, width: int) -> list[str]:
    """At most three lines of at most `width` characters; a name without blanks is broken too."""
    import textwrap

    return textwrap.wrap(text, width)[:3]


def part(facts: Mapping[str, Any], drawn: Mapping[str, Pictures]) -> str:
    """The part of the report with the pictures, and the models' numbers."""
    sections = [page.picture_section(name, drawn, wide=name == "cosines") for name in page.TEXTS if name in drawn]
    if by_model := facts.get("models"):
        rows = [
            [label, f"{model['alignment']:.3f}", f"{model['uniformity']:.3f}", f"{model['spearman']:.2f}"]
            for label, model in by_model.items()
        ]
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
    """The mean place of runs that differ in their seed, at the steps that all of them recorded.

    Args:
      seeds: of each run, `alignment` and `uniformity` by step.
    """
    steps = sorted(set.intersection(*(set(points) for points in seeds)))

    def mean(step: int, field: str) -> float:
        return float(np.mean([points[step][field] for points in seeds]))

    return [PlanePoint(step, mean(step, "alignment"), mean(step, "uniformity")) for step in steps]


def runs(by_run: Mapping[str, Sequence[PlanePoint]], title: str) -> Pictures:
    """Alignment against uniformity over the steps of runs, with arrows along the training direction (Figure 2).

    A single checkpoint is drawn as a single model is.

    Args:
      by_run: the places, by the runs' names; none without a place.
    """
    if len(by_run) == 1 and len(points := next(iter(by_run.values()))) == 1 and points[0].geometry:
        return alone(f"{next(iter(by_run))}, step {points[0].step}", points[0].geometry, title)
    names = [shortened(name) for name in by_run]
    columns = max(1, min(3, int(80 / (max(map(len, names)) + 8))))
    rows = math.ceil(len(names) / columns)
    with new_figure((6.6, 4.7 + 0.2 * rows)) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"Alignment and uniformity on {title}, by training step", loc="left")
        lines = []
        for name, style, points in zip(names, styles(by_run).values(), by_run.values(), strict=True):
            x, y = ([getattr(point, field) for point in points] for field in ("uniformity", "alignment"))
            size = 4.5 if len(points) <= MANY else 2.2
            axes.plot(x, y, markersize=size, label=name, zorder=3, **style)
            axes.plot(x[:1], y[:1], markersize=5.5, zorder=4, **style | {"markerfacecolor": "white"})
            lines.append(([point.step for point in points], np.column_stack([x, y]), style["color"]))
        alignment_and_uniformity(axes, *np.concatenate([points for _, points, _ in lines]).T)
        handles, _ = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.5)
        figure.canvas.draw()  # the layout is known from here on
        figure.set_layout_engine("none")
        for _, line, colour in lines:
            _point_along(axes, line, colour)
        _label_steps(figure, axes, lines)
    return pictures


def _point_along(axes: "Axes", points: np.ndarray, colour: str) -> None:
    """Arrowheads on a line, in the direction of training: one in the middle of each `BETWEEN_ARROWS`.

    Their direction is that of the line 5 points before and after, so that the noise of a step does not turn them.
    """
    scale = axes.figure.dpi / 72  # pixels a point
    path = _along(axes.transData.transform(points), scale)[1:]  # its first one is the end of the line
    parts = max(1, round(len(path) / BETWEEN_ARROWS))
    for part in range(parts if len(path) > 12 else 0):
        middle = int((part + 0.5) * len(path) / parts)
        tail, head = path[max(0, middle - 5)], path[min(len(path) - 1, middle + 5)]
        if np.linalg.norm(head - tail) < scale:
            continue  # it turns around here
        tail, head = axes.transData.inverted().transform([tail, head])
        style = {"arrowstyle": "-|>,head_length=1.1,head_width=0.3", "edgecolor": "white", "linewidth": 0.5}
        arrow = {**style, "facecolor": colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", head, tail, arrowprops=arrow, zorder=4)


def _label_steps(figure: "Figure", axes: "Axes", lines: Sequence[tuple[Sequence[int], np.ndarray, str]]) -> None:
    """Labels points with their steps, each tied to its point by a line, where there is room; the layout is fixed.

    The ends of the lines are first. Of the points between them those are labelled that are `APART` from the others.
    """
    scale = figure.dpi / 72  # pixels a point
    pixels = [axes.transData.transform(points) for _, points, _ in lines]
    half = 3.5 * scale  # of a marker
    taken = [np.concatenate([point - half, point + half]) for run in pixels for point in run]
    ends = [(run, place) for run, (steps, *_) in enumerate(lines) for place in dict.fromkeys((len(steps) - 1, 0))]
    inner = [(run, place) for run, path in enumerate(pixels) for place in _apart(path, APART * scale)]
    frame = axes.get_window_extent().extents
    along = np.concatenate([_along(run, 2 * scale) for run in pixels])
    starts: list[np.ndarray] = []
    for run, place in ends + inner:
        steps, points, colour = lines[run]
        text = f"step {steps[place]}" if place == 0 else str(steps[place])
        if place == 0 and not steps[0]:  # the start of runs of the same model needs one label
            if any(np.linalg.norm(pixels[run][0] - start) < 4 * scale for start in starts):
                continue
            starts.append(pixels[run][0])
            colour = "0.2"
        for label, box in _candidates(figure, axes, text, points[place], colour):
            inside = np.all(box[:2] >= frame[:2]) and np.all(box[2:] <= frame[2:])
            free = not any(np.all(box[:2] < other[2:]) and np.all(other[:2] < box[2:]) for other in taken)
            crossed = np.any(np.all((along > box[:2]) & (along < box[2:]), axis=1))
            if inside and free and not crossed:
                taken.append(box)
                tie = [pixels[run][place], np.clip(pixels[run][place], box[:2], box[2:])]
                axes.plot(*axes.transData.inverted().transform(tie).T, color=colour, linewidth=0.6, zorder=2)
                break
            label.remove()


def _apart(path: np.ndarray, gap: float) -> list[int]:
    """Places between the ends of a path (P, 2), each at least `gap` from the ends and from each other."""
    chosen = [0, len(path) - 1]
    for place in range(1, len(path) - 1):
        if min(np.linalg.norm(path[place] - path[other]) for other in chosen) >= gap:
            chosen.append(place)
    return chosen[2:]


def _candidates(
    figure: "Figure", axes: "Axes", text: str, point: np.ndarray, colour: str
) -> Iterator[tuple["Annotation", np.ndarray]]:
    """The label at each place around its point, nearer ones first, with its box in pixels."""
    for distance in (7, 12, 18, 26, 36):
        for x, y in AROUND:
            label = axes.annotate(
                text,
                (point[0], point[1]),
                (distance * x, distance * y),
                textcoords="offset points",
                ha="left" if x > 0 else "right" if x < 0 else "center",
                va="bottom" if y > 0 else "top" if y < 0 else "center",
                fontsize=8,
                color=colour,
                zorder=5,
            )
            yield label, np.asarray(label.get_window_extent().extents)


def _along(points: np.ndarray, step: float) -> np.ndarray:
    """Points on the line through `points`, at most `step` from each other."""
    parts = [points[-1:]]
    for start, end in itertools.pairwise(points):
        count = max(1, math.ceil(np.linalg.norm(end - start) / step))
        parts.append(start + (end - start) * np.arange(count)[:, None] / count)
    return np.concatenate(parts)
