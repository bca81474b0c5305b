"""Shared by all pictures: figures drawn as PNG and SVG, with lines that differ in grey too.

Every picture can be read without a caption. The same numbers give the same bytes.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f3a5f", "#c46a1b", "#2f8f6f", "#8e3b6f", "#555555")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LONGEST = 44  # characters of a name
DPI = 150

Pictures = dict[str, bytes]  # "png" and "svg"


def line_style(number: int) -> dict[str, Any]:
    """The colour, style and marker of the n-th line."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[number % len(STYLES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def shortened(name: str, longest: int = LONGEST) -> str:
    """The name, or its end if it is too long for a picture."""
    return name if len(name) <= longest else "…" + name[-longest + 1 :]


def short_names(names: Sequence[str]) -> list[str]:
    """Names for a picture: the last part of a path, with as many parts before it as distinguish the names."""
    cleaned = [name.removeprefix("package:").rstrip("/") for name in names]
    parts = [[part for part in name.split("/") if part] or [name] for name in cleaned]

    def short(number: int) -> str:
        others = [other for place, other in enumerate(parts) if cleaned[place] != cleaned[number]]
        count = 1
        while any(other[-count:] == parts[number][-count:] for other in others) and count < len(parts[number]):
            count += 1
        return "/".join(parts[number][-count:])

    return [short(number) for number in range(len(names))]


def unique(labels: list[str], names: list[str]) -> list[str]:
    """The labels, or the full names if two labels are the same."""
    return labels if len(set(labels)) == len(labels) else names


def spread(places: np.ndarray, gap: float) -> np.ndarray:
    """Places in [0, 1], moved as little as needed to be `gap` apart, in the same order.

    Without room for that, they fill [0, 1] evenly.
    """
    order = np.argsort(places, kind="stable")
    gap = min(gap, 1 / max(1, len(places) - 1))
    lowest = np.arange(len(places)) * gap
    # Without the gaps the places must rise; a running maximum from below and a minimum from above meet midway.
    free = np.clip(places[order] - lowest, 0, 1 - (len(places) - 1) * gap)
    rising = (np.maximum.accumulate(free) + np.minimum.accumulate(free[::-1])[::-1]) / 2
    moved = np.empty(len(places))
    moved[order] = rising + lowest
    return moved


def add_grid(axes: "Axes", **which: Any) -> None:
    """A pale grid under what is drawn."""
    axes.grid(color="0.92", **which)
    axes.set_axisbelow(True)


def panels(figure: "Figure", count: int, columns: int, **shared: Any) -> list["Axes"]:
    """`count` axes in rows of `columns`."""
    found = figure.subplots(-(-count // columns), columns, squeeze=False, **shared).ravel()
    for panel in found[count:]:
        panel.remove()
    return list(found[:count])


@contextlib.contextmanager
def new_figure(size: tuple[float, float]) -> Iterator[tuple["Figure", Pictures]]:
    """A figure of (width, height) inches to draw on, and a dictionary that holds the pictures after the block."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "simcse_jax",  # otherwise the names inside the svg are random
        "text.parse_math": False,  # a $ in a name is a $
    }
    pictures: Pictures = {}
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "agg", **style}):
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, pictures
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            out = io.BytesIO()
            figure.savefig(out, format=kind, dpi=DPI, metadata=metadata)
            pictures[kind] = out.getvalue()
