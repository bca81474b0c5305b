"""Pictures of the geometry of models and runs: SimCSE's Figures 2, 3, F.1, G.1 and Section 5, SimCSE++'s Figure 1."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.analysis.spectrum import Spectrum
from simcse_jax.evaluation.geometry import GRID, GROUPS, Geometry
from simcse_jax.evaluation.plotting import (
    COLOURS,
    LONGEST,
    SMALLEST,
    Pictures,
    add_grid,
    add_legend,
    log_scale,
    new_figure,
    panels,
    shortened,
    styles,
    whole_steps,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALIGNMENT = "alignment  E ‖f(x) − f(x⁺)‖²   (lower is better)"
UNIFORMITY = "uniformity  log E exp(−2 ‖f(x) − f(y)‖²)   (lower is better)"
SPEARMAN = "Spearman × 100 of cosines with the gold scores"
PALE = "0.6"
Panels = Mapping[str, Mapping[str, Geometry]]  # the measures by the models' names, by the titles of the panels
Spectra = Mapping[str, Mapping[int, Spectrum]]  # by step, by the runs' names
MANY = 12  # places of a run; more have small markers
SHOWN = 6  # steps of a run whose spectrum is drawn
WIDTHS, HEIGHT = {1: 4.6, 2: 3.3, 3: 2.5}, 2.9  # of a panel, in inches, by the panels next to each other
SOLID, DASHED = {"linestyle": "-"}, {"linestyle": "--", "markerfacecolor": "white"}
DOTTED = {"linestyle": ":", "marker": ""}
# What a panel of `terms` shows, by its title: the lines, solid, dashed and dotted, and the axis.
TERMS = {
    "Equation 6, alignment: of pairs of the same\nmeaning (solid), of dropout pairs (dashed)": (
        ("alignment_term", "dropout_alignment_term"),
        "−E f(x)ᵀf(x⁺) / τ",
    ),
    "Equation 6, uniformity: without dropout (solid),\nas the run trains (dashed)": (
        ("uniformity_term", "dropout_uniformity_term"),
        "E log E exp(f(x)ᵀf(x⁻)/τ)",
    ),
    "Equation 7: left side (solid), its lower bound\n(dashed), its floor 1/τ − log m (dotted)": (
        ("uniformity_with_self", "uniformity_bound", "uniformity_floor"),
        "E log E exp(hᵀh′/τ);   E hᵀh′/τ",
    ),
    "The top eigenvalue of W Wᵀ\n(all of them add up to {sentences:,})": (("top_eigenvalue",), "λ₁"),
    "The effective rank\n(at most {most:,})": (("effective_rank",), "exp(entropy of the singular values)"),
}


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
    """Alignment against uniformity over the steps of runs, from the hollow marker on (Figure 2)."""
    paths = [np.array([(point.uniformity, point.alignment) for point in points]) for points in by_run.values()]
    with new_figure((6.6, 4.7)) as (figure, pictures):
        axes = figure.subplots()
        axes.set_title(f"Alignment and uniformity on {title}, by training step", loc="left")
        for (name, style), points, path in zip(styles(by_run).items(), by_run.values(), paths, strict=True):
            axes.plot(*path.T, markersize=4.5 if len(path) <= MANY else 2.2, label=shortened(name), zorder=3, **style)
            axes.plot(*path[:1].T, markersize=5.5, zorder=4, **style | {"markerfacecolor": "white"})
            for place in {0, len(path) - 1}:
                offset = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8, "color": style["color"]}
                axes.annotate(f"step {points[place].step}", tuple(path[place]), **offset)
        _name_axes(axes, *np.concatenate(paths).T)
        add_legend(figure)
    return pictures


def singular_values(by_panel: Mapping[str, Mapping[str, np.ndarray]], title: str, scale: str = "linear") -> Pictures:
    """Singular values, the largest one set to 1: a panel for each title, in it a line for each name.

    Those below `SMALLEST` are directions that hardly any sentence uses.
    """
    columns = min(3, len(by_panel))
    rows = -(-len(by_panel) // columns)
    looks = styles(dict.fromkeys(name for lines in by_panel.values() for name in lines))
    with new_figure((0.8 + WIDTHS[columns] * columns, 0.8 + HEIGHT * rows)) as (figure, pictures):
        places = panels(figure, len(by_panel), columns, sharex=True, sharey=True)
        figure.suptitle(title, fontsize=10)
        for axes, (panel, lines) in zip(places, by_panel.items(), strict=True):
            for number, (name, values) in enumerate(lines.items()):
                drawn = values[values >= SMALLEST]
                style = looks[name] | {"markersize": 3.5, "markevery": (0.03 * number, 0.2)}
                axes.plot(np.arange(1, len(drawn) + 1), drawn, label=shortened(name), **style)
            axes.set_title(shortened(panel, 30), loc="left", fontsize=9)
            log_scale(axes, "y", *["x"] * (scale == "log"))
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("number, the largest first")
            add_grid(axes)
        for row in range(rows):
            places[row * columns].set_ylabel("singular value / the largest   (flatter is more isotropic)", fontsize=8)
        add_legend(figure)
    return pictures


def spectrum(runs: Spectra, title: str) -> Pictures:
    """The singular values of the sentence embeddings at some steps, a panel for each run; none without a step."""
    all_steps = sorted({step for spectra in runs.values() for step in spectra})
    steps = [all_steps[place] for place in _places(len(all_steps))]
    by_run = {
        run: {f"step {step:,}": spectra[step].singular_values for step in steps if step in spectra}
        for run, spectra in runs.items()
    }
    return singular_values(by_run, f"Singular values of the embeddings of {title}, by training step", "log")


def terms(runs: Spectra, title: str) -> Pictures:
    """The terms of the objective, if it has a temperature, the bound of equation 7, and what it bounds."""
    all_spectra = [spectrum for spectra in runs.values() for spectrum in spectra.values()]
    shown = [text for text, (fields, _) in TERMS.items() if any({*fields} & {*each.numbers} for each in all_spectra)]
    first = all_spectra[0]
    sentences = round(first.numbers["top_eigenvalue"] * float(np.sum(first.singular_values**2)))
    facts = {"sentences": sentences, "most": len(first.singular_values)}
    columns, rows = 2, -(-len(shown) // 2)
    with new_figure((0.8 + WIDTHS[columns] * columns, 0.8 + HEIGHT * rows)) as (figure, pictures):
        figure.suptitle(f"The objective and the spectrum of the embeddings of {title}", fontsize=10)
        for axes, text in zip(panels(figure, len(shown), columns), shown, strict=True):
            fields, up = TERMS[text]
            for (run, style), spectra in zip(styles(runs).items(), runs.values(), strict=True):
                for field, how in zip(fields, (SOLID | {"label": shortened(run)}, DASHED, DOTTED), strict=False):
                    numbers = {step: spectrum.numbers for step, spectrum in spectra.items()}
                    of_step = {step: its[field] for step, its in numbers.items() if field in its}
                    if of_step:
                        every = max(1, len(of_step) // 10)
                        axes.plot(*zip(*of_step.items(), strict=True), **style | how, markersize=4, markevery=every)
            axes.set_title(text.format(**facts), loc="left", fontsize=9)
            axes.set_xlabel("training step")
            axes.set_ylabel(up)
            whole_steps(axes)
            add_grid(axes)
        add_legend(figure)
    return pictures


def _places(count: int) -> list[int]:
    """At most `SHOWN` of so many steps, closest to each other at the start, where most changes; the ends among them."""
    return sorted({0, *np.geomspace(1, max(1, count - 1), SHOWN - 1).round().astype(int).tolist()})[:count]
