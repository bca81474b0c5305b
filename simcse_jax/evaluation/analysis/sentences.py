"""What changes for sentences: how alike unrelated and related ones are, where they lie, and the pairs themselves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from simcse_jax.evaluation import geometry, sts
from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.inputs import evenly
from simcse_jax.evaluation.analysis.isotropy import mean_cosine, normalize
from simcse_jax.evaluation.analysis.map import Map, project_by_size
from simcse_jax.evaluation.analysis.page import Section

MOST = 500  # sentences, and pairs, that are measured: all of them are in the page
BINS = np.linspace(-1, 1, 81)  # of the cosines' distributions
SENTENCES = "sentences.json"


class Measure(NamedTuple):
    """A number of a model."""

    title: str
    digits: int
    better: str  # "higher", or "" where neither is


# In the order of the page, which begins with the first.
MEASURES = {
    "unrelated": Measure("unrelated sentences, mean cosine", 2, ""),
    "related": Measure("{related}, mean cosine", 2, ""),
    "spearman": Measure("Spearman × 100 of {graded} graded pairs", 1, "higher"),
    "uniformity": Measure("uniformity", 2, ""),
}


class Sample(NamedTuple):
    """The sentences and pairs that are measured."""

    texts: list[str]  # T different ones: those of the pairs, too
    sentences: list[int]  # N of them that stand for all
    pairs: list[tuple[int, int]]  # none without grades
    gold: np.ndarray  # a grade for each pair


def sample(sentences: Sequence[str], pairs: sts.Pairs | None = None) -> Sample:
    """At most `MOST` different sentences and as many graded pairs, spread evenly over the data."""
    rows = evenly(range(len(pairs.gold)), MOST) if pairs else []
    sides = [(pairs.first[row], pairs.second[row]) for row in rows] if pairs else []
    firsts = dict.fromkeys(first for first, _ in sides)
    different = firsts if len(firsts) > 1 else dict.fromkeys([*sentences, *(text for side in sides for text in side)])
    chosen = evenly([text for text in different if text.strip()], MOST)
    place = {text: number for number, text in enumerate(dict.fromkeys([*chosen, *(t for side in sides for t in side)]))}
    gold = pairs.gold[rows] if pairs else np.zeros(0)
    return Sample(list(place), list(range(len(chosen))), [(place[a], place[b]) for a, b in sides], gold)


def compare(
    about: Sample,
    embeddings: Mapping[str, Float[np.ndarray, "T D"]],
    changes: Sequence[tuple[str, str]],
    data: str,
) -> tuple[dict[str, Any] | None, dict[str, Map]]:
    """Measures the models on the sample.

    Without grades, the related pairs are each sentence and the nearest one to it by the first model.

    Args:
      embeddings: of the sample's texts, of any length, by the models' labels.
      changes: the labels of a model and of the one that it is compared with.

    Returns:
      The contents of `sentences.json`: `texts`, `sentences` and `pairs` (their places in `texts` and their grade), and
      of each model its `numbers`, `map`, the `cosines` of the pairs, the place of each sentence's `nearest` one, and
      the `distributions` of the cosines of unrelated and related sentences.
    """
    if len(about.sentences) < 2 or not embeddings:
        return None, {}
    rows = {label: normalize(found) for label, found in embeddings.items()}
    own = np.array(about.sentences)
    cosines = {label: found[own] @ found[own].T - 2 * np.eye(len(own)) for label, found in rows.items()}
    nearest = {label: found.argmax(axis=1) for label, found in cosines.items()}
    first = next(iter(rows))
    graded = len(about.pairs) > 0
    pairs = about.pairs or [(number, int(other)) for number, other in enumerate(nearest[first])]
    related = about.gold > geometry.POSITIVE if graded else np.ones(len(pairs), bool)
    names = {"related": "pairs rated above 4" if graded else f"neighbours in {first}", "graded": len(pairs)}
    maps = project_by_size({label: found[own] for label, found in rows.items()})
    found: dict[str, Any] = {"data": data, "changes": [list(pair) for pair in changes], "texts": about.texts}
    found |= {"sentences": about.sentences, "names": names, "bins": np.round(BINS, 4).tolist(), "models": {}}
    grades = np.round(about.gold, 3).tolist() if graded else [None] * len(pairs)
    found["pairs"] = [[*pair, grade] for pair, grade in zip(pairs, grades, strict=True)]
    sides = np.array(pairs).T
    upper = np.triu_indices(len(own), 1)
    for label, embedded in rows.items():
        of_pairs = np.sum(embedded[sides[0]] * embedded[sides[1]], axis=1)
        unrelated = cosines[label][upper]
        numbers: dict[str, float] = {"unrelated": float(mean_cosine(embedded[own]))}
        if related.any():
            numbers["related"] = float(of_pairs[related].mean())
        if graded:
            numbers["spearman"] = sts.spearman(of_pairs, about.gold)
        numbers["uniformity"] = geometry.uniformity(embedded[own])
        map_ = next(one for one in maps.values() if label in one.points)
        found["models"][label] = {
            "numbers": {name: round(number, 6) for name, number in numbers.items()},
            "map": {"title": map_.title, "axes": map_.axes, "points": np.round(map_.points[label], 4).tolist()},
            "cosines": np.round(of_pairs, 4).tolist(),
            "nearest": nearest[label].tolist(),
            "distributions": [_density(unrelated), _density(of_pairs[related])],
        }
    return found, maps


def _density(cosines: np.ndarray) -> list[float]:
    if not len(cosines):
        return []
    return np.round(np.histogram(np.clip(cosines, -1, 1), BINS, density=True)[0], 4).tolist()


def title(name: str, found: Mapping[str, Any]) -> str:
    """What a measure is called."""
    return MEASURES[name].title.format(**found["names"])


def changed(found: Mapping[str, Any]) -> list[str]:
    """A sentence for each model and the one that it is compared with, or for each model if there are no such pairs."""
    models = found["models"]
    lines = []
    for model, base in found["changes"]:
        if model not in models or base not in models:
            continue
        before, after = models[base]["numbers"], models[model]["numbers"]
        parts = [f"{title(name, found)} {_arrow(name, before, after)}" for name in before]
        same = np.mean(np.array(models[base]["nearest"]) == np.array(models[model]["nearest"]))
        kept = f"{100 * same:.0f}% of the sentences have the same nearest sentence as before"
        lines.append(f"{base} → {model}: {'; '.join([*parts, kept])}.")
    if not lines:
        for label, one in models.items():
            parts = [f"{title(name, found)} {_digits(name, value)}" for name, value in one["numbers"].items()]
            lines.append(f"{label}: {', '.join(parts)}.")
    return lines


def headline(found: Mapping[str, Any]) -> str:
    """The first change in a few words."""
    models = found["models"]
    pairs = [(model, base) for model, base in found["changes"] if model in models and base in models]
    if not pairs:
        return f"{' and '.join(models) if len(models) < 3 else f'{len(models)} models'} on {found['data']}"
    model, base = pairs[0]
    before, after = (models[label]["numbers"] for label in (base, model))
    change = after["unrelated"] - before["unrelated"]
    moved = "crowd together" if change > 0.1 else "spread out" if change < -0.1 else "stay about as far apart"
    text = f"{base} → {model}: unrelated sentences {moved}, mean cosine {_arrow('unrelated', before, after)}"
    return f"{text}; Spearman {_arrow('spearman', before, after)}" if "spearman" in before else text


def _arrow(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    return f"{_digits(name, before[name])} → {_digits(name, after[name])}"


def _digits(name: str, value: float) -> str:
    digits = MEASURES[name].digits
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # no −0.00


def part(found: Mapping[str, Any]) -> str:
    """The part of the page, whose pictures its script draws."""
    measured = [name for name in MEASURES if name in next(iter(found["models"].values()))["numbers"]]
    shown = [{"name": name, **MEASURES[name]._asdict(), "title": title(name, found)} for name in measured]
    rows = [
        [label, *(_digits(name, one["numbers"][name]) for name in measured)] for label, one in found["models"].items()
    ]
    if found["pairs"][0][2] is None:
        base = next(iter(found["models"]))
        what = f"A point is a sentence and the one nearest to it by {base}: their cosine before and after."
    else:
        what = (
            "A point is a pair of sentences: its cosine before and after, coloured by its grade. A good model has the "
            "pairs of a high grade at the top right, and the others far below them."
        )
    sections = [
        Section(
            "Map of the sentences",
            "A point is a sentence, and near ones mean much the same to the model. Both maps are one projection, so "
            "their sizes can be compared. Each point keeps the colour of its place before: where colours mix, "
            "sentences have changed their neighbours.",
            '<div id="maps"></div>',
        ),
        Section("Pairs of sentences", what, '<div id="pairs"></div>'),
        Section(
            "Related and unrelated",
            "How the cosines are distributed: the less the two overlap, the better search works.",
            '<div id="distributions"></div>'
            + page.table("The sentences in numbers", ["", *(measure["title"] for measure in shown)], rows),
        ),
    ]
    about = f"Measured on {len(found['sentences']):,} sentences and {len(found['pairs']):,} pairs of {found['data']}."
    return page.part("sentences", headline(found), [*changed(found), about], sections, {**found, "measures": shown})
