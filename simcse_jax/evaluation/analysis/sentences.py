"""Changes of sentences: how alike unrelated and related ones are, where they lie, and the pairs themselves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from simcse_jax.evaluation import geometry, sts
from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.inputs import evenly
from simcse_jax.evaluation.analysis.isotropy import mean_cosine, normalize
from simcse_jax.evaluation.analysis.map import Map, project_by_size

MOST = 500  # sentences, and pairs, that are measured: all of them are in the page
BINS = np.linspace(-1, 1, 81)  # of the cosines' distributions
SENTENCES = "sentences.json"
FAR = 0.1  # by which the mean cosine of unrelated sentences changes where they are said to move


class SentenceSample(NamedTuple):
    """The sentences and pairs that are measured."""

    texts: list[str]  # T different ones: those of the pairs, too
    sentences: list[int]  # N of them that stand for all
    pairs: list[tuple[int, int]]  # none without grades
    gold: np.ndarray  # a grade for each pair


def sample(sentences: Sequence[str], pairs: sts.Pairs | None = None) -> SentenceSample:
    """At most `MOST` different sentences and as many graded pairs, spread evenly over the data."""
    rows = evenly(range(len(pairs.gold)), MOST) if pairs else []
    sides = [(pairs.first[row], pairs.second[row]) for row in rows] if pairs else []
    firsts = dict.fromkeys(first for first, _ in sides)
    different = firsts if len(firsts) > 1 else dict.fromkeys([*sentences, *(text for side in sides for text in side)])
    chosen = evenly([text for text in different if text.strip()], MOST)
    place = {text: number for number, text in enumerate(dict.fromkeys([*chosen, *(t for side in sides for t in side)]))}
    gold = pairs.gold[rows] if pairs else np.zeros(0)
    return SentenceSample(list(place), list(range(len(chosen))), [(place[a], place[b]) for a, b in sides], gold)


def compare(
    about: SentenceSample,
    embeddings: Mapping[str, Float[np.ndarray, "T D"]],
    changes: Sequence[tuple[str, str]],
    data: str,
    poolers: Mapping[str, str] = {},
) -> tuple[dict[str, Any] | None, dict[str, Map]]:
    """Measures the models on the sample: the contents of `sentences.json`, and the maps.

    Args:
      embeddings: of the sample's texts, of any length, by the models' labels.
      changes: the labels of a model and of the one that it is compared with.
      poolers: by label; where two that are compared have others, the report says so.
    """
    if len(about.sentences) < 2 or not embeddings:
        return None, {}
    rows = {label: normalize(unit) for label, unit in embeddings.items()}
    places = np.array(about.sentences)
    cosines = {label: unit[places] @ unit[places].T - 2 * np.eye(len(places)) for label, unit in rows.items()}
    nearest = {label: matrix.argmax(axis=1) for label, matrix in cosines.items()}
    graded = len(about.pairs) > 0
    pairs = about.pairs or _neighbours(nearest)
    related = about.gold > geometry.POSITIVE if graded else np.ones(len(pairs), bool)
    kind = "pairs rated above 4" if graded else "nearest sentences"
    measures: list[tuple[str, str, int, str]] = [  # each with its title, its digits, and what is better
        ("unrelated", "unrelated sentences, mean cosine", 2, ""),
        *([("related", f"{kind}, mean cosine", 2, "")] if related.any() else []),
        *([("spearman", f"Spearman × 100 of {len(pairs)} graded pairs", 1, "higher")] if graded else []),
        ("uniformity", "uniformity", 2, ""),
    ]
    maps = project_by_size({label: unit[places] for label, unit in rows.items()})
    grades = np.round(about.gold, 3).tolist() if graded else [None] * len(pairs)
    upper, (one, other) = np.triu_indices(len(places), 1), np.array(pairs).T
    models = {}
    for label, embedded in rows.items():
        of_pairs = np.sum(embedded[one] * embedded[other], axis=1)
        numbers = {
            "unrelated": float(mean_cosine(embedded[places])),
            "uniformity": geometry.uniformity(embedded[places]),
        }
        numbers |= {"related": float(np.mean(of_pairs[related]))} if related.any() else {}
        numbers |= {"spearman": sts.spearman(of_pairs, about.gold)} if graded else {}
        map_ = next(candidate for candidate in maps.values() if label in candidate.points)
        models[label] = {
            "numbers": {name: round(numbers[name], 6) for name, *_ in measures},
            "map": {"title": map_.title, "axes": map_.axes, "points": np.round(map_.points[label], 4).tolist()},
            "cosines": np.round(of_pairs, 4).tolist(),
            "nearest": nearest[label].tolist(),
            "distributions": [_density(cosines[label][upper]), _density(of_pairs[related])],
        }
    comparison = {
        "data": data,
        "poolers": {**poolers},
        "changes": [list(pair) for pair in changes],
        "texts": about.texts,
        "sentences": about.sentences,
        "related": kind,
        "graded": graded,
        "measures": measures,
        "bins": np.round(BINS, 4).tolist(),
        "models": models,
        "pairs": [[*pair, grade] for pair, grade in zip(pairs, grades, strict=True)],
    }
    return comparison, maps


def _neighbours(nearest: Mapping[str, np.ndarray]) -> list[tuple[int, int]]:
    """Pairs in place of graded ones: each sentence and the nearest one to it by every model, so that none has an edge.

    At most `MOST` are spread evenly over those of all models together.
    """
    by_sentence = enumerate(zip(*nearest.values(), strict=True))
    found = ((number, int(other)) for number, others in by_sentence for other in others)
    return evenly(list(dict.fromkeys((min(pair), max(pair)) for pair in found)), MOST)


def _density(cosines: np.ndarray) -> list[float]:
    if not len(cosines):
        return []
    return np.round(np.histogram(np.clip(cosines, -1, 1), BINS, density=True)[0], 4).tolist()


def changed(comparison: Mapping[str, Any]) -> list[str]:
    """A line for each model and the one that it is compared with, or for each model if there are no such pairs."""
    models, poolers = comparison["models"], comparison["poolers"]
    lines = []
    for labels in _changes(comparison) or [(label,) for label in models]:
        parts = [f"{title} {_values(comparison, name, labels)}" for name, title, *_ in comparison["measures"]]
        if len(labels) > 1:
            before, after = (np.array(models[label]["nearest"]) for label in labels)
            parts.append(
                f"{100 * np.mean(before == after):.0f}% of the sentences have the same nearest sentence as before"
            )
        lines.append(f"{' → '.join(labels)}: {'; '.join(parts)}.")
        if len({poolers.get(label) for label in labels}) > 1:
            base, model = labels
            lines.append(
                f"{base} takes the pooler {poolers[base]} and {model} {poolers[model]}, so what changed is not the "
                f"training alone: compare with {base}@{poolers[model]}"
            )
    return lines


def headline(comparison: Mapping[str, Any]) -> str:
    """The first change in a few words."""
    models = comparison["models"]
    if not (changes := _changes(comparison)):
        return f"{' and '.join(models) if len(models) < 3 else f'{len(models)} models'} on {comparison['data']}"
    before, after = (models[label]["numbers"]["unrelated"] for label in changes[0])
    moved = (after > before + FAR) - (after < before - FAR)
    movement = ("stay about as far apart", "crowd together", "spread out")[moved]
    text = f"{' → '.join(changes[0])}: unrelated sentences {movement}, "
    text += f"mean cosine {_values(comparison, 'unrelated', changes[0])}"
    return text + (f"; Spearman {_values(comparison, 'spearman', changes[0])}" if comparison["graded"] else "")


def part(comparison: Mapping[str, Any]) -> str:
    """The part of the page, whose sections its script makes."""
    sentences, pairs = len(comparison["sentences"]), len(comparison["pairs"])
    about = f"Measured on {sentences:,} sentences and {pairs:,} pairs of {comparison['data']}."
    return page.part("sentences", headline(comparison), [*changed(comparison), about], [], comparison)


def _changes(comparison: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Each model that is compared after its base, where both were measured."""
    return [(base, model) for model, base in comparison["changes"] if {model, base} <= comparison["models"].keys()]


def _values(comparison: Mapping[str, Any], measure: str, labels: Sequence[str]) -> str:
    digits = next(digits for name, _, digits, _ in comparison["measures"] if name == measure)
    values = (round(comparison["models"][label]["numbers"][measure], digits) + 0.0 for label in labels)  # no −0.00
    return " → ".join(f"{value:.{digits}f}".replace("-", "−") for value in values)
