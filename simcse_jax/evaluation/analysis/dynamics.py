"""How runs change the space while they train: their measures over the steps, drawn together (Figures 8 to 23)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcse_jax.evaluation.analysis import page, pictures
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.analysis.pictures import MEASURES
from simcse_jax.evaluation.analysis.report import PAPER, to_json
from simcse_jax.evaluation.plotting import short_names, unique

FIELDS = (
    "anisotropy",
    "l2_norm",
    "adjusted_self_similarity",
    "adjusted_intra_sentence_similarity",
    "alignment",
    "uniformity",
)
DYNAMICS = "dynamics.json"
VAGUE = ("name", "weight", "m")  # last parts of config fields that say nothing alone

Points = Sequence[Mapping[str, float]]  # of a run: `step`, and measures of the last layer


def labels(configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of runs for a picture: the one field in which their configs differ, otherwise their folders.

    Args:
      configs: the fields that change a result, by their dotted names; by the names of the runs' folders.
    """
    names, values = list(configs), list(configs.values())
    fields = dict.fromkeys(field for config in values for field in config)
    differing = [field for field in fields if any(config.get(field) != values[0].get(field) for config in values)]
    if len(differing) == 1:
        *_, parent, last = ["", *differing[0].split(".")]
        field_name = (f"{parent} {last}" if last in VAGUE else last).replace("_", " ").strip()
        texts = [f"{field_name} {_value(config.get(differing[0]))}" for config in values]
        if len(set(texts)) == len(texts):
            return texts
    return unique(short_names(names), names)


def write(
    runs: Mapping[str, Points],
    folder: Path,
    *,
    data: str,
    about: Mapping[str, Any],
    workdirs: Mapping[str, str],
    versions: Mapping[str, str],
) -> list[str]:
    """Writes `dynamics.json`, a picture for each measure and `report.html`: all or none.

    Args:
      runs: by their labels; the steps of each rise. A measure that no point has is left out.

    Returns:
      The names of the files; the page is the last to be written.

    Raises:
      ValueError: when a number is not finite.
    """
    shown = {label: {"workdir": workdirs[label], "points": list(points)} for label, points in runs.items()}
    files: dict[str, str | bytes] = {DYNAMICS: to_json({"data": data, "about": dict(about), "runs": shown})}
    sections = []
    for field in FIELDS:
        points_of = {
            label: [(int(point["step"]), float(point[field])) for point in points if field in point]
            for label, points in runs.items()
        }
        points_of = {label: points for label, points in points_of.items() if points}
        if not points_of:
            continue
        drawn = {field: pictures.over_steps(points_of, field, data)}
        files |= {f"{field}.{kind}": content for kind, content in drawn[field].items()}
        sections.append(page.picture_section(field, drawn))
    sections.append(PageSection("First and last step", "", _ends(runs)))
    measured = page.facts({"What was measured": {"data": data, **about}, "Versions": versions})
    measured += page.table("The runs", [], list(workdirs.items()), text=True)
    sections.append(PageSection("How it was measured", "", measured))
    about_runs = f"{len(runs)} run{'s' * (len(runs) > 1)}, measured on {data}. The measures are those of {PAPER}."
    part = page.part("runs", "How training changes the space", [*changed(runs), about_runs], sections)
    return page.write(folder, files, {"runs": part})


def changed(runs: Mapping[str, Points]) -> list[str]:
    """A line for each run: its measures at its first step and at its last."""
    lines = []
    for name, points in runs.items():
        first, last = points[0], points[-1]
        steps = f"step {first['step']}" + f" → {last['step']}" * (len(points) > 1)
        parts = [
            f"{MEASURES[field].title.lower()} {first[field]:.3f}" + f" → {last[field]:.3f}" * (len(points) > 1)
            for field in FIELDS
            if field in first and field in last
        ]
        lines.append(f"{name}, last layer, {steps}: {', '.join(parts)}.")
    return lines


def _ends(runs: Mapping[str, Points]) -> str:
    """The table of the first and the last measured step of each run."""
    fields = [field for field in FIELDS if any(field in point for points in runs.values() for point in points)]
    rows = [
        [label, str(point["step"]), *(f"{point[field]:.3f}" if field in point else None for field in fields)]
        for label, points in runs.items()
        for point in (points[0], *points[1:][-1:])
    ]
    return page.table("The last layer", ["", "step", *(MEASURES[field].title for field in fields)], rows)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return "none" if value in (None, "") else str(value)
