"""Pictures of a report and of the dynamics of runs: the figures of the isotropy paper."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simcse_jax.evaluation.analysis.page import TEXTS
from simcse_jax.evaluation.plotting import (
    COLOURS,
    Pictures,
    add_grid,
    add_legend,
    chart,
    log_scale,
    new_figure,
    panels,
    shortened,
    styles,
    unique,
    whole_steps,
)

if TYPE_CHECKING:
    from simcse_jax.evaluation.analysis.map import Map

SHARES = (10, 20, 50)  # percent
WINDOW = 25  # tokens of a running mean
SIZE = (5.0, 3.5)  # inches; two fit next to each other on a page
NAMED = 8  # the tokens that changed most have a label, and those around a sentence
PANELS = 4  # of a map, next to each other
MEASURES = {name: text for name, text in TEXTS.items() if text.axis}  # of a layer, or of a step of a run


def line_styles(names: Iterable[str], pairs: Sequence[tuple[str, str]] = ()) -> dict[str, dict[str, Any]]:
    """The style of each model's line; the base of a pair (model, base), which is no other one's model, is dashed."""
    return styles(names, {base for _, base in pairs} - {model for model, _ in pairs})


def layers(
    models: Mapping[str, Sequence[Mapping[str, float]]], field: str, data: str, pairs: Sequence[tuple[str, str]] = ()
) -> Pictures:
    """A measure over the layers, a line for each model (Figures 2 to 7)."""
    title = f"{MEASURES[field].title} of the tokens, by layer\n{shortened(data)}"
    with chart(title, "layer   (0: the embedding layer)", MEASURES[field].axis, SIZE) as (axes, pictures):
        axes.axhline(0, color="0.5", linewidth=0.8, zorder=1)  # and so 0 is on the scale
        for name, style in line_styles(models, pairs).items():
            x, y = ([row[key] for row in models[name]] for key in ("layer", field))
            axes.plot(x, y, label=shortened(name), markersize=5, **style)
        if axes.dataLim.ymin >= 0:
            axes.set_ylim(bottom=0)
        axes.set_xticks(range(1 + max(int(rows[-1]["layer"]) for rows in models.values())))
    return pictures


def dimensions(
    models: Mapping[str, Sequence[float]], kind: str, data: str, pairs: Sequence[tuple[str, str]] = ()
) -> Pictures:
    """The cumulated shares of the dimensions in the mean cosine, the largest first, a line for each model (Table 1)."""
    title = f"Share of the top dimensions in the cosines\nof {kind}, last layer\n{shortened(data)}"
    across = "dimensions, the largest contribution first\n(markers: as many are needed for 10, 20 and 50%)"
    with chart(title, across, "% of the mean cosine, cumulated", SIZE) as (axes, pictures):
        for name, style in line_styles(models, pairs).items():
            percent = 100 * np.asarray(models[name])
            style = {**style, "markersize": 5, "markevery": [int(np.argmax(percent >= share)) for share in SHARES]}
            axes.plot(np.arange(1, len(percent) + 1), percent, label=shortened(name), **style)
        log_scale(axes, "x")
        axes.set_ylim(bottom=0)
        axes.set_yticks([0, *SHARES, 75, 100])
    return pictures


def informativity(
    models: Mapping[str, Sequence[Mapping[str, float]]], data: str, pairs: Sequence[tuple[str, str]] = ()
) -> Pictures:
    """r² of the cosines before and after the top k dimensions are removed, a line for each model (Table 3)."""
    title = f"What the cosines keep without the top k dimensions\ntokens of {shortened(data)}"
    across = "k: dimensions removed, the largest contribution first"
    with chart(title, across, "r² with the cosines of all dimensions", SIZE) as (axes, pictures):
        for name, style in line_styles(models, pairs).items():
            x, y = ([row[field] for row in models[name]] for field in ("k", "r2"))
            axes.plot(x, y, label=shortened(name), markersize=5, **style)
        axes.set_xscale("log")
        ticks = sorted({row["k"] for rows in models.values() for row in rows})
        axes.set_xticks(ticks, map(str, ticks))
        axes.minorticks_off()
        axes.set_ylim(0, 1.03)
    return pictures


def self_similarity_change(pairs: Sequence[Mapping[str, Any]]) -> Pictures:
    """The self-similarity change (eq. 10) of frequent tokens, the most frequent first (Figure 24).

    A panel for each pair of models in `metrics.json`, on the same scale: in one, the tokens would hide each other.
    """
    columns = min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    with new_figure((SIZE[0] if columns == 1 else 8.4, 0.8 + 2.9 * rows)) as (figure, pictures):
        places = panels(figure, len(pairs), columns, sharey=True)
        most = max(len(pair["tokens"]) for pair in pairs)
        figure.suptitle(f"Self-similarity change of the {most} most frequent tokens", fontsize=10, x=0.01, ha="left")
        for panel, pair in zip(places, pairs, strict=True):
            changes = np.array([token["change"] for token in pair["tokens"]])
            ranks, window = np.arange(1, len(changes) + 1), min(WINDOW, len(changes))
            panel.set_title(f"{shortened(pair['base'])}\n→ {shortened(pair['model'])}", loc="left", fontsize=9)
            panel.axhline(0, color="0.5", linewidth=0.8, zorder=1)
            style: dict[str, Any] = {"marker": "o", "markersize": 3.5, "markerfacecolor": "white"}
            style |= {"linestyle": "", "color": "0.45"}
            panel.plot(ranks, changes, label="a token", zorder=2, **style)
            special = np.array([token["special"] for token in pair["tokens"]])
            far = np.argsort(-np.abs(changes - np.median(changes)), kind="stable")[:NAMED]
            for place in {*np.flatnonzero(special).tolist(), *far.tolist()}:
                style = {"textcoords": "offset points", "va": "center", "fontsize": 7.5, "zorder": 4}
                panel.annotate(pair["tokens"][place]["token"], (ranks[place], changes[place]), (5, 0), **style)
            style = {"color": COLOURS[0], "linewidth": 1.8}
            mean = np.convolve(changes, np.full(window, 1 / window), "valid")
            panel.plot(ranks[: len(mean)] + (window - 1) / 2, mean, label=f"mean of {window} tokens", zorder=3, **style)
            panel.set_xlabel("rank of the token, the most frequent first")
            add_grid(panel)
        figure.supylabel("change   (above 0: less contextualized)", fontsize=9)
        add_legend(figure)
    return pictures


def correlation(correlations: Sequence[Mapping[str, Any]]) -> Pictures:
    """The `correlations` of `metrics.json`: of self-similarity changes over the n most frequent tokens (eq. 11)."""
    models = list(dict.fromkeys(model for both in correlations for model, _ in both["pairs"]))
    short = dict(zip(models, unique([shortened(model, 20) for model in models], models), strict=True))
    title = "Do two pairs of models change the same tokens?\nCorrelation of their self-similarity changes"
    labels = [" and ".join(short[model] for model, _ in both["pairs"]) for both in correlations]
    across = "n: the most frequent tokens that are compared"
    with chart(title, across, "Pearson correlation", SIZE) as (axes, pictures):
        for both, (label, style) in zip(correlations, styles(labels).items(), strict=True):
            y = np.array([np.nan if value is None else value for value in both["by_n"]], np.float64)
            best = f"best: {both['best']:.3f} at n = {both['best_n']}"
            label = f"{label}, {best}" if len(correlations) > 1 else best
            axes.plot(np.arange(1, len(y) + 1), y, label=label, markevery=[both["best_n"] - 1], **style)
    return pictures


def embedding_map(projection: "Map", data: str) -> Pictures:
    """Sentence embeddings in two dimensions, a panel for each model on the same axes (Figure 1)."""
    columns = min(PANELS, len(projection.points))
    rows = -(-len(projection.points) // columns)
    names = list(projection.points)
    everything = np.concatenate(list(projection.points.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    middle, half = (low + high) / 2, 0.55 * max(1e-9, (high - low).max())  # both axes have the same scale
    size = np.clip(8000 / len(everything), 5, 24)
    colours = styles(names)
    with new_figure((0.4 + 3.4 * columns, 0.4 + 4.0 * rows)) as (figure, pictures):
        places = panels(figure, len(names), columns, sharex=True, sharey=True)
        figure.suptitle(f"Sentence embeddings of {shortened(data)}, {projection.title}", fontsize=10, x=0.01, ha="left")
        for panel, (name, points) in zip(places, projection.points.items(), strict=True):
            other_models = [other for other in names if other != name]
            for other in other_models:
                style = {"s": size, "color": "0.82", "linewidths": 0, "rasterized": True}
                panel.scatter(*projection.points[other].T, zorder=1, **style)
            cosine = round(projection.cosines[name], 2) + 0.0  # no −0.00
            style = {"s": size, "color": colours[name]["color"], "linewidths": 0, "rasterized": True}
            panel.scatter(*points.T, zorder=2, **style)
            panel.set_title(f"{shortened(name, 38)}\nmean cosine of two sentences: {cosine:.2f}", fontsize=9)
            panel.set_aspect("equal")
            panel.set_xlim(middle[0] - half, middle[0] + half)
            panel.set_ylim(middle[1] - half, middle[1] + half)
            panel.tick_params(labelbottom=True)
            panel.set_xlabel(projection.axes[0])
            panel.set_ylabel(projection.axes[1])
        if len(names) > 1:
            figure.supxlabel(f"pale: the other model{'s' * (len(names) > 2)}", fontsize=8)
    return pictures


def over_steps(runs: Mapping[str, Sequence[tuple[int, float]]], field: str, data: str) -> Pictures:
    """A measure over the steps of runs, a line for each run (Figures 8 to 23)."""
    title = f"{MEASURES[field].title}, by training step\n{shortened(data)}"
    longest = max(len(points) for points in runs.values())
    with chart(title, "training step", MEASURES[field].axis, SIZE) as (axes, pictures):
        for (name, style), points in zip(styles(runs).items(), runs.values(), strict=True):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, label=shortened(name), markersize=4.5, markevery=max(1, longest // 15), **style)
        whole_steps(axes)
    return pictures
