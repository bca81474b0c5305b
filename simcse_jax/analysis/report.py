"""The report on a model's space: numbers as JSON, pictures as PNG, SVG and JSON, and one page with all of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.analysis import page, pictures, summary
from simcse_jax.analysis.map import Map
from simcse_jax.analysis.page import Section
from simcse_jax.analysis.pictures import MEASURES
from simcse_jax.analysis.protocol import CHOICES
from simcse_jax.plotting import Pictures, short_names, unique
from simcse_jax.storage import write_together

METRICS, PAGE = "metrics.json", "report.html"
PAPER = "“On Isotropy and Learning Dynamics of Contrastive-based Sentence Representation Learning” (Xiao et al., 2023)"
PAIRS = {"dimensions": "self-similarity pairs", "dimensions_random_pairs": "random pairs"}
NOTHING = "–"  # a cell without a value

Metrics = Mapping[str, Any]  # the measurements; see `write`


class Drawing(NamedTuple):
    """A picture, its description and its numbers."""

    pictures: Pictures
    alt: str  # for readers who cannot see it
    data: dict[str, Any]  # the numbers drawn


def write(
    metrics: Metrics, folder: Path, *, versions: Mapping[str, str], embedding_map: Map | None = None
) -> list[str]:
    """Writes the report, all of its files or none: `metrics.json`, `report.html`, and NAME.png, .svg and .json.

    Args:
      metrics: `model`, `compare` (None without), `data`, `sentences`, `tokens` and `protocol`; of the model `layers`,
        `dimensions`, `dimensions_random_pairs` and `informativity`; with a second model the same four of it in `base`,
        and `self_similarity_change`; `correlation` of two pairs of models, if measured.
      folder: the folder, created if needed.
      versions: of the packages that the numbers can depend on.
      embedding_map: the map of the sentence embeddings, if one was made.

    Returns:
      The names of the files; the page is the last to be written.

    Raises:
      UserError: when the folder cannot be written to.
      ValueError: when a number is not finite.
    """
    files: dict[str, str | bytes] = {METRICS: to_json(metrics)}
    drawings = draw(metrics, embedding_map)
    for name, drawing in drawings.items():
        files |= {f"{name}.{kind}": content for kind, content in drawing.pictures.items()}
        files[f"{name}.json"] = to_json(drawing.data)
    files[PAGE] = html(metrics, drawings, versions)
    write_together(folder, files)
    return list(files)


def to_json(value: Mapping[str, Any]) -> str:
    """JSON with a line break at its end.

    Raises:
      ValueError: when a number is not finite.
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def explained(facts: Mapping[str, Any]) -> list[list[str]]:
    """Names and values as the rows of a table, the choices of a protocol with their meanings."""
    rows = []
    for name, value in facts.items():
        meaning = CHOICES.get(name, {}).get(value)
        rows.append([name.replace("_", " "), f"{value}: {meaning}" if meaning else _value(value)])
    return rows


def models_of(metrics: Metrics) -> dict[str, Metrics]:
    """The measurements of the model and of the base, if there is one, by their names on a picture."""
    found = {metrics["model"]: metrics} | ({metrics["compare"]: metrics["base"]} if "base" in metrics else {})
    return dict(zip(unique(short_names(list(found)), list(found)), found.values(), strict=True))


def draw(metrics: Metrics, embedding_map: Map | None = None) -> dict[str, Drawing]:
    """The pictures, by the names of their files."""
    models, data = models_of(metrics), metrics["data"]
    drawings = {}
    for field in MEASURES:
        if field not in metrics["layers"][0]:
            continue
        shown = {
            name: [{key: row[key] for key in ("layer", field)} for row in found["layers"]]
            for name, found in models.items()
        }
        drawings[field] = Drawing(pictures.layers(shown, field, data), _described(field, shown), shown)
    for field, pairs in PAIRS.items():
        shares = {name: found[field]["cumulated"] for name, found in models.items() if found[field]["cumulated"]}
        if not shares:  # the mean cosine is not positive, so there is nothing to have a share of
            continue
        alt = f"How much of the mean cosine of {pairs} the top dimensions give together; a table below has the numbers."
        drawings[field] = Drawing(pictures.dimensions(shares, pairs, data), alt, shares)
    informativity = {model: found["informativity"] for model, found in models.items()}
    alt = "r² of the cosines with and without the top k dimensions; the table below has the numbers."
    drawings["informativity"] = Drawing(pictures.informativity(informativity, data), alt, informativity)
    if change := metrics.get("self_similarity_change"):
        tokens = change["tokens"]
        above = sum(token["change"] > 0 for token in tokens)
        alt = f"Self-similarity change of {len(tokens)} frequent tokens: {above} of them are less contextualized now."
        drawn = pictures.self_similarity_change(tokens, *models)
        drawings["self_similarity_change"] = Drawing(drawn, alt, {"tokens": tokens})
    if correlation := metrics.get("correlation"):
        alt = f"Correlation over the n most frequent tokens: at best {correlation['best']:.3f}, where n = "
        alt += f"{correlation['best_n']}."
        numbers = (correlation[key] for key in ("by_n", "best_n", "best"))
        drawings["correlation"] = Drawing(pictures.correlation(*numbers), alt, dict(correlation))
    if embedding_map:
        cosines = ", ".join(f"{value:.2f} of {name}" for name, value in embedding_map.cosines.items())
        alt = f"Sentence embeddings in two dimensions, {embedding_map.title}; mean cosine of two sentences: {cosines}."
        drawings["map"] = Drawing(pictures.embedding_map(embedding_map, data), alt, embedding_map.to_json())
    return drawings


def html(metrics: Metrics, drawings: Mapping[str, Drawing], versions: Mapping[str, str]) -> str:
    """The page."""
    models = models_of(metrics)
    names = list(models)
    compared = f" and {metrics['compare']}" if metrics["compare"] else ""
    about = (
        f"Measured on {metrics['tokens']:,} tokens of {metrics['sentences']:,} sentences of {metrics['data']}, in each "
        f"layer of {metrics['model']}{compared}. The measures are those of {PAPER}."
    )

    def drawn(*names: str) -> str:
        shown = [(drawings[name].pictures["svg"], drawings[name].alt) for name in names]
        return page.figures(shown, wide=names == ("map",))

    def measure(field: str) -> Section:
        title, _, meaning = MEASURES[field]
        if (adjusted := f"adjusted_{field}") not in drawings:
            return Section(title, meaning, drawn(field))
        more = MEASURES[adjusted].meaning
        return Section(title, f"{meaning} Adjusted: {more[0].lower()}{more[1:]}", drawn(field, adjusted))

    sections = [
        Section("In short", "The last layer: most models make their sentence embeddings of it.", _summary(models)),
        *(measure(field) for field in MEASURES if field in drawings and not field.startswith("adjusted")),
        Section(
            "Dimensions",
            "Which part of the mean cosine single dimensions make up: where few make up most of it, cosines speak of "
            "these few alone.",
            drawn(*(field for field in PAIRS if field in drawings)) + _dimensions(models),
        ),
        Section(
            "Informativity",
            "What the cosines keep when the top k dimensions are removed: near 1, those dimensions add "
            "nothing to the others.",
            drawn("informativity") + _informativity(models),
        ),
    ]
    if "self_similarity_change" in drawings:
        meaning = (
            f"How much the adjusted self-similarity of a token grew from {names[1]} to {names[0]}: above 0, its "
            "embedding depends less on the context now."
        )
        content = drawn("self_similarity_change") + _changes(metrics["self_similarity_change"])
        sections.append(Section("Self-similarity change", meaning, content))
    if "correlation" in drawings:
        meaning = (
            "Whether contrastive learning changes the same tokens in two pairs of models: a high correlation says that "
            "the changes are no chance."
        )
        sections.append(Section("Correlation of two pairs of models", meaning, drawn("correlation")))
    if "map" in drawings:
        meaning = "Where the sentences lie: a point is a sentence, and near ones mean much the same to the model."
        sections.append(Section("Map of the sentences", meaning, drawn("map")))
    sections.append(Section("All layers", "", "".join(_layers(name, found) for name, found in models.items())))
    sections.append(Section("How it was measured", "", _about(metrics, versions, drawings)))
    return page.page(f"The space of {names[0]}", [in_a_sentence(metrics), about], sections)


def in_a_sentence(metrics: Metrics) -> str:
    """What changed in the last layer from the base to the model, or the measures of the only model."""
    models = models_of(metrics)
    (name, found), *base = models.items()
    if not base:
        return summary.of_a_model(name, found["layers"])
    ((before, other),) = base
    return summary.of_two_models(before, name, other["layers"][-1], found["layers"][-1])


def _described(field: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """A line chart in words."""
    parts = []
    for name, rows in found.items():
        first, last, top = rows[0], rows[-1], max(rows, key=lambda row: row[field])
        parts.append(
            f"{name}: {_number(first[field])} in layer {first['layer']}, {_number(last[field])} in layer "
            f"{last['layer']}, at most {_number(top[field])} in layer {top['layer']}."
        )
    return f"{MEASURES[field].title} by layer. {' '.join(parts)}"


def _summary(models: Mapping[str, Metrics]) -> str:
    last = {name: found["layers"][-1] for name, found in models.items()}
    rows = [
        [MEASURES[field].title, *(_number(row[field]) for row in last.values())]
        for field in MEASURES
        if all(field in row for row in last.values())
    ]
    rows.append(
        [
            "Dimensions that make up half of the self-similarity",
            *(_value(found["dimensions"]["needed"]["50"]) for found in models.values()),
        ]
    )
    return page.table("The last layer in numbers", ["", *models], rows)


def _dimensions(models: Mapping[str, Metrics]) -> str:
    header = ["", *(f"top\u00a0{n}" for n in (1, 2, 3)), *(f"for\u00a0{share}%" for share in pictures.SHARES)]
    tables = []
    for field, kind in PAIRS.items():
        rows = [
            [
                name,
                *(NOTHING if share is None else f"{100 * share:.1f}%" for share in found[field]["top_share"]),
                *(_value(found[field]["needed"][str(share)]) for share in pictures.SHARES),
            ]
            for name, found in models.items()
        ]
        caption = f"Share of the top dimensions, and how many are needed: {kind}"
        tables.append(page.table(caption, header, rows))
    return "".join(tables)


def _informativity(models: Mapping[str, Metrics]) -> str:
    ks = sorted({row["k"] for found in models.values() for row in found["informativity"]})
    rows = []
    for name, found in models.items():
        by_k = {row["k"]: row["r2"] for row in found["informativity"]}
        rows.append([name, *(_number(by_k.get(k)) for k in ks)])
    return page.table("r² without the top k dimensions", ["", *(f"k\u00a0=\u00a0{k}" for k in ks)], rows)


def _changes(change: Mapping[str, Any]) -> str:
    by_token = {token["token"]: token["change"] for token in change["tokens"]}

    def cell(tokens: Sequence[str], place: int) -> list[str]:
        if place >= len(tokens):
            return [NOTHING, NOTHING]
        return [tokens[place], f"{by_token[tokens[place]]:+.3f}"]

    more, less = change["more_contextualized"], change["less_contextualized"]
    rows = [[str(place + 1), *cell(more, place), *cell(less, place)] for place in range(max(len(more), len(less)))]
    header = ["", "more contextualized", "change", "less contextualized", "change"]
    return page.table("The tokens that changed most", header, rows, text=True)


def _layers(name: str, found: Metrics) -> str:
    fields = [field for field in MEASURES if field in found["layers"][0]]
    rows = [[str(row["layer"]), *(_number(row[field]) for field in fields)] for row in found["layers"]]
    return page.table(name, ["layer", *(MEASURES[field].title for field in fields)], rows)


def _about(metrics: Metrics, versions: Mapping[str, str], drawings: Mapping[str, Drawing]) -> str:
    measured = {
        "model": metrics["model"],
        "compared with": metrics["compare"] or NOTHING,
        "data": metrics["data"],
        "sentences": f"{metrics['sentences']:,}",
        "token embeddings": f"{metrics['tokens']:,} a layer",
    }
    parts = {"What was measured": measured, "Protocol": metrics["protocol"], "Versions": versions}
    tables = [page.table(caption, [], explained(part), text=True) for caption, part in parts.items()]
    files = f"{METRICS} has all numbers; each picture is next to this page as .png, .svg and .json"
    return "".join([*tables, page.note(f"{files}: {', '.join(drawings)}.")])


def _value(value: Any) -> str:
    return NOTHING if value is None else str(value)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
