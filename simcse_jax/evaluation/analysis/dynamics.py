"""How runs change the space while they train: their measures over the steps, drawn together (Figures 8 to 23)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcse_jax.evaluation.analysis import page, pictures
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.analysis.pictures import MEASURES
from simcse_jax.evaluation.analysis.report import PAPER

FIELDS = (
    "anisotropy",
    "l2_norm",
    "adjusted_self_similarity",
    "adjusted_intra_sentence_similarity",
    "alignment",
    "uniformity",
)
DYNAMICS = "dynamics.json"

Points = Sequence[Mapping[str, float]]  # of a run: `step`, and measures of the last layer


def write(
    runs: Mapping[str, Points],
    folder: Path,
    *,
    data: str,
    about: Mapping[str, Any],
    workdirs: Mapping[str, str],
    versions: Mapping[str, str],
) -> list[str]:
    """Writes `dynamics.json`, a picture for each measure and `report.html`, all or none; the names of the files.

    Runs are by their labels; the steps of each rise. A measure that no point has is left out.
    """
    shown = {label: {"workdir": workdirs[label], "points": list(points)} for label, points in runs.items()}
    sections, drawn = [], {}
    for field in FIELDS:
        points_of: dict[str, list[tuple[int, float]]] = {}
        for label, points in runs.items():
            for point in (point for point in points if field in point):
                points_of.setdefault(label, []).append((int(point["step"]), float(point[field])))
        if points_of:
            drawn[field] = pictures.over_steps(points_of, field, data)
            sections.append(page.picture_section(field, drawn))
    measured = page.facts({"What was measured": {"data": data, **about}, "Versions": versions})
    measured += page.table("The runs", [], list(workdirs.items()), text=True)
    sections.append(PageSection("How it was measured", "", measured))
    about_runs = f"{len(runs)} run{'s' * (len(runs) > 1)}, measured on {data}. The measures are those of {PAPER}."
    part = page.part("runs", "How training changes the space", [*changed(runs), about_runs], sections)
    numbers = {DYNAMICS: {"data": data, "about": dict(about), "runs": shown}}
    return page.write(folder, numbers, drawn, {"runs": part})


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
