"""Shared by all pictures: figures drawn as PNG and SVG, with lines that differ in grey too.

Every picture can be read without a caption. The same numbers give the same bytes.
"""

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f3a5f", "#d9822b", "#2f8f6f", "#a03b7a", "#7a7f87", "#5aa9e6", "#b3261e", "#8a6d1f", "#6a4fb3", "#8cbf3f")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LONGEST = 44  # characters of a name
LETTERS, HANDLE = 12, 8  # characters of a legend in an inch, and as many as the line before a name takes
DPI = 150
SMALLEST = 1e-3  # singular value, next to the largest, that is drawn

Pictures = dict[str, bytes]  # "png" and "svg"


def styles(names: Iterable[str], dashed: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """The colour, style, marker and width of each line, by its name; no two of ten lines share a colour.

    A line is thinner than those before it, so that of lines that coincide each is seen. If some are `dashed`, with
    hollow markers, others are solid.
    """
    names, dashed = list(names), set(dashed)
    by_name: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        by_name[name] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": STYLES[name in dashed if dashed else number % len(STYLES)],
            "marker": MARKERS[number % len(MARKERS)],
            "linewidth": 1.3 + 2.4 * (1 - (number + 1) / len(names)),
        }
        if name in dashed:
            by_name[name]["markerfacecolor"] = "white"
    return by_name


def shortened(name: str, longest: int = LONGEST) -> str:
    """The name, or its end if it is too long for a picture."""
    return name if len(name) <= longest else "…" + name[-longest + 1 :]


def short_names(names: Sequence[str]) -> list[str]:
    """The last part of each path, with the row of a sweep's run (ROW/seedN), and what else distinguishes the names."""
    cleaned = [name.removeprefix("package:").rstrip("/") for name in names]
    parts = [[part for part in name.split("/") if part] or [name] for name in cleaned]

    def short(number: int) -> str:
        different = [other for place, other in enumerate(parts) if cleaned[place] != cleaned[number]]
        count = 2 if re.fullmatch(r"seed\d+", parts[number][-1]) else 1
        while any(other[-count:] == parts[number][-count:] for other in different) and count < len(parts[number]):
            count += 1
        return "/".join(parts[number][-count:])

    return [short(number) for number in range(len(names))]


def unique(labels: list[str], names: list[str]) -> list[str]:
    """The labels, or the full names if two labels are the same."""
    return labels if len(set(labels)) == len(labels) else names


def add_grid(axes: "Axes", **options: Any) -> None:
    """A pale grid under what is drawn."""
    axes.grid(color="0.92", **options)
    axes.set_axisbelow(True)


def add_legend(figure: "Figure") -> None:
    """A legend below all panels, with each name once; the figure grows by its rows."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    columns = max(1, int(figure.get_figwidth() * LETTERS / (max(map(len, handles)) + HANDLE)))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    style: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "handlelength": 3.5}
    figure.legend(list(handles.values()), list(handles), ncols=-(-len(handles) // rows), **style)


def log_scale(axes: "Axes", *which: str) -> None:
    """A logarithmic scale, with plain numbers, of the axes "x" or "y"."""
    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: "")


def whole_steps(axes: "Axes") -> None:
    """Whole numbers alone on the axis of training steps."""
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]  # a MaxNLocator is there


def panels(figure: "Figure", count: int, columns: int, **shared: Any) -> list["Axes"]:
    """`count` axes in rows of `columns`."""
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **shared).ravel()
    for panel in grid[count:]:
        panel.remove()
    return list(grid[:count])


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


@contextlib.contextmanager
def chart(title: str, across: str, up: str, size: tuple[float, float]) -> Iterator[tuple["Axes", Pictures]]:
    """Axes with titles, a grid and a legend for the lines that are drawn in the block, and the pictures after it."""
    with new_figure(size) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(title, loc="left")
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        yield axes, pictures
        add_grid(axes)
        add_legend(figure)
