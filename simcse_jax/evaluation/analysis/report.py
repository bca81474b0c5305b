"""The tokens' part of the report, and its numbers as lines for a terminal."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcse_jax.evaluation.analysis import page, pictures, sentences
from simcse_jax.evaluation.analysis.map import Map
from simcse_jax.evaluation.analysis.measure import Measurement
from simcse_jax.evaluation.analysis.page import PAGE, PageSection
from simcse_jax.evaluation.analysis.pictures import MEASURES
from simcse_jax.evaluation.analysis.tokens import Survey
from simcse_jax.evaluation.plotting import Pictures
from simcse_jax.evaluation.sts import aligned

METRICS = "metrics.json"
PAPER = "“On Isotropy and Learning Dynamics of Contrastive-based Sentence Representation Learning” (Xiao et al., 2023)"
PAIRS = {"dimensions": "self-similarity pairs", "dimensions_random_pairs": "random pairs"}
ReportMetrics = Mapping[str, Any]  # the measurements; see `write`


def write(
    metrics: ReportMetrics,
    folder: Path,
    *,
    versions: Mapping[str, str],
    compared: ReportMetrics | None,
    maps: Mapping[str, Map],
) -> list[str]:
    """Writes the report, all or none: JSON, `report.html`, and NAME.png and NAME.svg; the names of the files.

    Args:
      metrics: as `measure.collect` gives them.
      compared: the sentences, as `sentences.compare` gives them; None: not measured.
    """
    drawings = draw(metrics, maps)
    numbers = {METRICS: metrics}
    parts = {"tokens": part(metrics, drawings, versions), "sentences": ""}
    if compared:
        numbers[sentences.SENTENCES] = compared
        parts["sentences"] = sentences.part(compared)
    return page.write(folder, numbers, drawings, parts)


def models_of(metrics: ReportMetrics) -> dict[str, ReportMetrics]:
    """The measurements of the models, by their labels."""
    return {model["label"]: model for model in metrics["models"]}


def draw(metrics: ReportMetrics, maps: Mapping[str, Map]) -> dict[str, Pictures]:
    """The pictures, by the names of their files."""
    models, data = models_of(metrics), metrics["data"]
    pairs = [(pair["model"], pair["base"]) for pair in metrics["pairs"]]
    layers = {name: model["layers"] for name, model in models.items()}
    drawn = {
        field: pictures.layers(layers, field, data, pairs)
        for field in MEASURES
        if field in metrics["models"][0]["layers"][0]
    }
    for field, kind in PAIRS.items():
        # Where the mean cosine is not positive there is nothing to have a share of.
        if shares := {name: model[field]["cumulated"] for name, model in models.items() if model[field]["cumulated"]}:
            drawn[field] = pictures.dimensions(shares, kind, data, pairs)
    informativity = {model: values["informativity"] for model, values in models.items()}
    drawn["informativity"] = pictures.informativity(informativity, data, pairs)
    if metrics["pairs"]:
        drawn["self_similarity_change"] = pictures.self_similarity_change(metrics["pairs"])
    if metrics["correlations"]:
        drawn["correlation"] = pictures.correlation(metrics["correlations"])
    return drawn | {name: pictures.embedding_map(projection, data) for name, projection in maps.items()}


def part(metrics: ReportMetrics, drawings: Mapping[str, Pictures], versions: Mapping[str, str]) -> str:
    """The part of the page."""
    models = models_of(metrics)
    tokens = " or ".join(f"{count:,}" for count in dict.fromkeys(model["tokens"] for model in models.values()))
    about = (
        f"Measured on {tokens} tokens of {metrics['sentences']:,} sentences of {metrics['data']}, in each layer of "
        f"{', '.join(models)}. The measures are those of {PAPER}."
    )

    sections = [page.picture_section("last_layer", {}, more=_summary(models))]
    sections += [
        page.picture_section(field, drawings, f"adjusted_{field}")
        for field in MEASURES
        if field in drawings and not field.startswith("adjusted")
    ]
    tables = "".join(_dimensions(models, field, kind) for field, kind in PAIRS.items())
    sections.append(page.picture_section("dimensions", drawings, "dimensions_random_pairs", more=tables))
    sections.append(page.picture_section("informativity", drawings, more=_informativity(models)))
    if changes := metrics["pairs"]:
        more = _changes(changes)
        sections.append(page.picture_section("self_similarity_change", drawings, more=more, wide=len(changes) > 1))
    if metrics["correlations"]:
        sections.append(page.picture_section("correlation", drawings))
    files = f"{METRICS} has all numbers; each picture is next to this page as .png and .svg."
    sections.append(PageSection("How it was measured", files, _about(metrics, versions)))
    return page.part("tokens", "The tokens, layer by layer", [about], sections)


def _summary(models: Mapping[str, ReportMetrics]) -> str:
    last = [model["layers"][-1] for model in models.values()]
    fields = [field for field in MEASURES if field in last[0]]
    rows = [[MEASURES[field].title, *(_number(row[field]) for row in last)] for field in fields]
    half = [model["dimensions"]["needed"]["50"] for model in models.values()]
    rows.append(["Dimensions that make up half of the self-similarity", *half])
    return page.table("The last layer in numbers", ["", *models], rows)


def _dimensions(models: Mapping[str, ReportMetrics], field: str, kind: str) -> str:
    header = ["", *(f"top\u00a0{n}" for n in (1, 2, 3)), *(f"for\u00a0{share}%" for share in pictures.SHARES)]
    rows = []
    for name, model in models.items():
        shares = [None if share is None else f"{100 * share:.1f}%" for share in model[field]["top_share"]]
        rows.append([name, *shares, *model[field]["needed"].values()])
    return page.table(f"Share of the top dimensions, and how many are needed: {kind}", header, rows)


def _informativity(models: Mapping[str, ReportMetrics]) -> str:
    by_model = {name: {row["k"]: row["r2"] for row in model["informativity"]} for name, model in models.items()}
    ks = max(by_model.values(), key=len)
    rows = [[name, *(_number(by_k.get(k)) for k in ks)] for name, by_k in by_model.items()]
    return page.table("r² without the top k dimensions", ["", *(f"k\u00a0=\u00a0{k}" for k in ks)], rows)


def _changes(pairs: Sequence[ReportMetrics]) -> str:
    """Table 2: of each pair a column with the tokens that became more contextualized, and one with the others."""
    columns, header = [], [""]
    for pair in pairs:
        by_token = {token["token"]: token["change"] for token in pair["tokens"]}
        for kind in ("more_contextualized", "less_contextualized"):
            columns.append([f"{token} ({by_token[token]:+.3f})" for token in pair[kind]])
            header.append(f"{pair['model']}: " * (len(pairs) > 1) + kind.replace("_", " "))
    rows = [[str(place), *cells] for place, cells in enumerate(itertools.zip_longest(*columns), 1)]
    return page.table("The tokens that changed most", header, rows, text=True)


def _about(metrics: ReportMetrics, versions: Mapping[str, str]) -> str:
    rows = [
        [model["label"], model["model"], *(f"{model[key]:,}" for key in ("tokens", "types", "samples"))]
        for model in metrics["models"]
    ]
    header = ["", "name", "tokens", "types with a self-similarity", "sampled tokens"]
    measured = {"data": metrics["data"], "sentences": f"{metrics['sentences']:,}"}
    parts = {"What was measured": measured, "Protocol": metrics["protocol"], "Versions": versions}
    return page.table("The models", header, rows, text=True) + page.facts(parts)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def data_lines(data: str, surveys: Mapping[str, Survey], max_length: int) -> str:
    """The size of the data, and what is left out of the measurement: a line for each model."""
    lines = []
    for label, survey in surveys.items():
        types = f"{len(survey.names):,} token types that occur {survey.protocol.min_count} times or more"
        parts = [f"{len(survey.sentences):,} sentences, {survey.units.sum():,} tokens, {types}"]
        if len(survey.sample) < survey.protocol.samples:
            parts.append(f"the anisotropy baseline has {len(survey.sample)} tokens, one from each sentence")
        if survey.cut:
            parts.append(f"{survey.cut:,} of the sentences are longer than {max_length} tokens and are cut")
        lines.append(f"{data}, {label}: {'; '.join(parts)}")
    return "\n".join(lines)


def table(measurement: Measurement) -> str:
    """A line for each layer."""
    header = ["layer", "anisotropy", "self-sim.", "intra-sent.", "L2 norm", "adj. self", "adj. intra"]
    rows = [
        [str(layer), *(f"{value:.3f}" for value in values)]
        for layer, *values in (row.values() for row in measurement.to_json()["layers"])
    ]
    return aligned([header, *rows])


def change_lines(metrics: Mapping[str, Any]) -> str:
    """The tokens that changed most in each pair of models, and how two pairs agree; empty without pairs."""
    lines = []
    for pair in metrics["pairs"]:
        lines.append(f"\n{pair['base']} → {pair['model']}")
        lines += [f"{kind} contextualized: {' '.join(pair[f'{kind}_contextualized'])}" for kind in ("more", "less")]
    for both in metrics["correlations"]:
        names = " and ".join(f"{base} → {model}" for model, base in both["pairs"])
        where = f"the {both['best_n']} most frequent of {len(both['by_n'])} tokens"
        lines.append(f"\n{names}: correlation of the changes: at best {both['best']:.3f}, over {where}")
    return "\n".join(lines)


def files_line(folder: Path, numbers: str, names: Sequence[str]) -> str:
    """The files that were written."""
    pictures = sum(name.endswith(".png") for name in names)
    return f"{folder}: {numbers}, {PAGE} and {pictures} pictures (PNG and SVG)"
