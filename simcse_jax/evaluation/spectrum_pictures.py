"""Pictures of how training flattens the spectrum (SimCSE, Section 5), over the steps of runs."""

from collections.abc import Mapping

import numpy as np

from simcse_jax.evaluation.analysis.spectrum import Spectrum
from simcse_jax.evaluation.plotting import (
    SMALLEST,
    Pictures,
    add_grid,
    add_legend,
    new_figure,
    panels,
    shortened,
    styles,
)

Spectra = Mapping[str, Mapping[int, Spectrum]]  # by step, by the runs' names
SHOWN = 6  # steps of a run
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
            axes.set_xscale(scale)
            axes.set_yscale("log")
            for axis in (axes.yaxis, *[axes.xaxis] * (scale == "log")):
                axis.set_major_formatter(lambda value, _: f"{value:g}")
                axis.set_minor_formatter(lambda value, _: "")
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
                for field, how in zip(fields, (SOLID, DASHED, DOTTED), strict=False):
                    numbers = {step: spectrum.numbers for step, spectrum in spectra.items()}
                    points = [(step, of_step[field]) for step, of_step in numbers.items() if field in of_step]
                    label = shortened(run) if field == fields[0] else None
                    if points:
                        more = {"markersize": 4, "markevery": max(1, len(points) // 10), "label": label}
                        axes.plot(*zip(*points, strict=True), **style | how | more)
            axes.set_title(text.format(**facts), loc="left", fontsize=9)
            axes.set_xlabel("training step")
            axes.set_ylabel(up)
            axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]  # a MaxNLocator is there
            add_grid(axes)
        add_legend(figure)
    return pictures


def _places(count: int) -> list[int]:
    """At most `SHOWN` of so many steps, closest to each other at the start, where most changes; the ends among them."""
    return sorted({0, *np.geomspace(1, max(1, count - 1), SHOWN - 1).round().astype(int).tolist()})[:count]
