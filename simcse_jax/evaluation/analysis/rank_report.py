"""The ranks of the dimensions' correlation as lines, as JSON, as a picture, and on a page (SimCSE++, section 4.2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import Section
from simcse_jax.evaluation.analysis.rank import READINGS, Rank
from simcse_jax.evaluation.analysis.report import PAGE, explained, to_json
from simcse_jax.evaluation.plotting import Pictures, line_style, new_figure, shortened
from simcse_jax.evaluation.sts import aligned
from simcse_jax.host.storage import write_together

RANK, PICTURE = "rank.json", "rank"
HEADER = ("batch", "artificial rows", "at most", "rank", "effective rank")
PAPER = "“SimCSE++: Improving Contrastive Learning for Sentence Embeddings from Two Perspectives” (Xu et al., 2023)"
MEANING = (
    "Barlow Twins pulls the correlation of the dimensions in a batch towards the identity, whose rank is the number of "
    "dimensions. The correlation cannot have a higher rank than the batch has rows, so with 64 sentences it stays far "
    "from it; artificial rows raise the bound."
)


class Ranks(NamedTuple):
    """Of one model."""

    name: str
    dimensions: int
    found: list[Rank]


def rows(found: Sequence[Rank], reading: str) -> list[list[str]]:
    """The cells of a table, by `HEADER`: a rank is that of all batches, or its lowest and highest."""
    return [
        [
            str(rank.batch),
            str(rank.artificial),
            str(rank.bound),
            _span(rank.ranks),
            f"{_mean(rank.effective_ranks):.1f}",
        ]
        for rank in found
        if rank.reading == reading
    ]


def table(ranks: Ranks) -> str:
    """The table for a terminal, a part for each reading."""
    lines = []
    for reading, meaning in READINGS.items():
        lines += [f"{reading} ({meaning})", aligned([list(HEADER), *rows(ranks.found, reading)])]
    return "\n".join(lines)


def in_short(models: Mapping[str, Ranks]) -> str:
    """The first batch size without artificial rows, in a sentence a model."""
    sentences = []
    for label, ranks in models.items():
        first = ranks.found[0]
        added = f" and {first.artificial} artificial rows" * (first.artificial > 0)
        sentences.append(
            f"{label}: with {first.batch} sentences{added} the correlation of {ranks.dimensions} dimensions has rank "
            f"{_span(first.ranks)} (at most {first.bound}) and effective rank {_mean(first.effective_ranks):.1f}."
        )
    return " ".join(sentences)


def write(
    models: Mapping[str, Ranks], folder: Path, *, data: str, about: Mapping[str, Any], versions: Mapping[str, str]
) -> list[str]:
    """Writes `rank.json`, the picture and `report.html`: all or none.

    Returns:
      The names of the files; the page is the last to be written.
    """
    listed = [
        {"model": ranks.name, "label": label, "dimensions": ranks.dimensions}
        | {"ranks": [rank.to_json() for rank in ranks.found]}
        for label, ranks in models.items()
    ]
    drawn = draw(models, data)
    files: dict[str, str | bytes] = {RANK: to_json({"data": data, "about": dict(about), "models": listed})}
    files |= {f"{PICTURE}.{kind}": content for kind, content in drawn.items()}
    tables = [
        page.table(f"{label}, {reading}", HEADER, rows(ranks.found, reading))
        for label, ranks in models.items()
        for reading in READINGS
    ]
    tolerance = (
        "Rank: the singular values above the largest one times the number of dimensions times 2.2e-16 (float64). "
        "Effective rank: the exponential of the entropy of the singular values (Roy & Vetterli, 2007), the mean over "
        "the batches."
    )
    parts: dict[str, Sequence[Sequence[str]]]
    parts = {"What was measured": explained({"data": data, **about}), "Readings": list(READINGS.items())}
    parts["Versions"] = explained(versions)
    measured = "".join(page.table(caption, [], part, text=True) for caption, part in parts.items())
    sections = [
        Section("Rank by artificial rows", "", page.figures([(drawn["svg"], in_short(models))])),
        Section("All numbers", tolerance, "".join(tables)),
        Section("How it was measured", f"The claim is that of {PAPER}, section 4.2.", measured),
    ]
    files[PAGE] = page.page("The rank of the dimensions' correlation", [in_short(models), MEANING], sections)
    write_together(folder, files)
    return list(files)


def draw(models: Mapping[str, Ranks], data: str) -> Pictures:
    """Rank and effective rank over the artificial rows, a panel for each model and a line for each batch size."""
    columns = min(3, len(models))
    lines = -(-len(models) // columns)
    with new_figure((1.0 + 3.6 * columns, 1.6 + 2.9 * lines)) as (figure, pictures):
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for panel in panels[len(models) :]:
            panel.remove()
        figure.suptitle(f"Rank of the dimensions' correlation, {shortened(data)}", fontsize=10, x=0.01, ha="left")
        for panel, (label, ranks) in zip(panels, models.items(), strict=False):
            found = [rank for rank in ranks.found if rank.reading == "paper"]
            panel.axhline(ranks.dimensions, color="0.5", linewidth=0.8, linestyle=":", label="the identity's rank")
            for number, batch in enumerate(dict.fromkeys(rank.batch for rank in found)):
                own = [rank for rank in found if rank.batch == batch]
                x, style = [rank.artificial for rank in own], line_style(number) | {"markersize": 5, "linestyle": "-"}
                panel.plot(x, [_mean(rank.ranks) for rank in own], label=f"{batch} sentences", **style)
                style |= {"linestyle": "--", "markerfacecolor": "white"}
                effective = [_mean(rank.effective_ranks) for rank in own]
                panel.plot(x, effective, label=f"{batch} sentences, effective rank", **style)
            panel.set_title(shortened(label, 38), fontsize=9, loc="left")
            panel.set_ylim(bottom=0)
            panel.set_xlabel("artificial rows")
            panel.set_ylabel("rank (mean of the batches)")
            panel.grid(color="0.92")
            panel.set_axisbelow(True)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(columns, 2), frameon=False)
    return pictures


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"
