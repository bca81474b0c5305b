"""Pictures of how runs move on the plane of alignment and uniformity while they train: SimCSE's Figure 2."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simcse_jax.evaluation.geometry import Geometry
from simcse_jax.evaluation.geometry_pictures import alignment_and_uniformity, alone
from simcse_jax.evaluation.plotting import Pictures, line_style, new_figure, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

# Places for the label of a point: right, left, above, below, and between.
AROUND = ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))
BETWEEN_ARROWS = 70  # points of a line; shorter lines have one arrow
MANY = 12  # places of a run; more have small markers, and labels for some alone
LABELS = 4  # between the ends of such a run


class Place(NamedTuple):
    """Where a run is at a step."""

    step: int
    alignment: float
    uniformity: float
    geometry: Geometry | None = None  # None for what the run recorded

    def to_json(self) -> dict[str, float]:
        """The numbers, for JSON."""
        return {"step": self.step, "alignment": round(self.alignment, 6), "uniformity": round(self.uniformity, 6)}


def mean_of(seeds: Sequence[Mapping[int, Mapping[str, float]]]) -> list[Place]:
    """Where runs that differ in their seed are on average, at the steps that all of them recorded.

    Args:
      seeds: of each run, `alignment` and `uniformity` by step.
    """
    steps = sorted(set.intersection(*(set(points) for points in seeds)))

    def mean(step: int, field: str) -> float:
        return float(np.mean([points[step][field] for points in seeds]))

    return [Place(step, mean(step, "alignment"), mean(step, "uniformity")) for step in steps]


def runs(found: Mapping[str, Sequence[Place]], title: str) -> Pictures:
    """Alignment against uniformity over the steps of runs, with arrows along the training direction (Figure 2).

    A single checkpoint is drawn as a single model is.

    Args:
      found: the places, by the runs' names; none without a place.
    """
    if len(found) == 1 and len(points := next(iter(found.values()))) == 1 and points[0].geometry:
        return alone(f"{next(iter(found))}, step {points[0].step}", points[0].geometry, title)
    names = [shortened(name) for name in found]
    columns = max(1, min(3, int(80 / (max(map(len, names)) + 8))))
    rows = math.ceil(len(names) / columns)
    with new_figure((6.6, 4.7 + 0.2 * rows)) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"Alignment and uniformity on {title}, by training step", loc="left")
        lines = []
        for number, (name, points) in enumerate(zip(names, found.values(), strict=True)):
            x, y = ([getattr(point, field) for point in points] for field in ("uniformity", "alignment"))
            style = line_style(number)
            size = 4.5 if len(points) <= MANY else 2.2
            axes.plot(x, y, markersize=size, linewidth=1.3, label=name, zorder=3, **style)
            axes.plot(x[:1], y[:1], markersize=5.5, markerfacecolor="white", zorder=4, **style)
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
    """Labels points with their steps as long as there is room, first the ends of the lines; the layout is fixed."""
    scale = figure.dpi / 72  # pixels a point
    pixels = [axes.transData.transform(points) for _, points, _ in lines]
    markers = [_box(point, 3.5 * scale) for run in pixels for point in run]
    taken: list[np.ndarray] = []
    ends = [(run, place) for run, (steps, *_) in enumerate(lines) for place in dict.fromkeys((len(steps) - 1, 0))]
    others = [(run, place) for run, (steps, *_) in enumerate(lines) for place in _between(len(steps))]
    frame = axes.get_window_extent().extents
    along = np.concatenate([_along(run, 2 * scale) for run in pixels])
    starts: list[np.ndarray] = []
    for run, place in ends + others:
        steps, points, colour = lines[run]
        text = f"step {steps[place]}" if place == 0 else str(steps[place])
        if place == 0 and not steps[0]:  # the start of runs of the same model needs one label
            if any(np.linalg.norm(pixels[run][0] - start) < 4 * scale for start in starts):
                continue
            starts.append(pixels[run][0])
            colour = "0.2"
        for label, box in _candidates(figure, axes, text, points[place], colour):
            inside = np.all(box[:2] >= frame[:2]) and np.all(box[2:] <= frame[2:])
            free = not any(_overlap(box, other) for other in [*markers, *taken])
            crossed = np.any(np.all((along > box[:2]) & (along < box[2:]), axis=1))
            if inside and free and not crossed:
                taken.append(box)
                break
            label.remove()


def _between(count: int) -> list[int]:
    """The places between the ends of a run that get labels: all, or a few where there are many."""
    if count <= MANY:
        return list(range(1, count - 1))
    return np.linspace(0, count - 1, LABELS + 2).round().astype(int)[1:-1].tolist()


def _candidates(
    figure: "Figure", axes: "Axes", text: str, point: np.ndarray, colour: str
) -> Iterator[tuple["Annotation", np.ndarray]]:
    """The label at each place around its point, nearer ones first, with its box in pixels."""
    for distance in (7, 12, 18):
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


def _box(point: np.ndarray, half: float) -> np.ndarray:
    return np.concatenate([point - half, point + half])


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(a[:2] < b[2:]) and np.all(b[:2] < a[2:]))


def _along(points: np.ndarray, step: float) -> np.ndarray:
    """Points on the line through `points`, at most `step` from each other."""
    parts = [points[-1:]]
    for start, end in itertools.pairwise(points):
        count = max(1, math.ceil(np.linalg.norm(end - start) / step))
        parts.append(start + (end - start) * np.arange(count)[:, None] / count)
    return np.concatenate(parts)
