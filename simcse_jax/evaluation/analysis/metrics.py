"""All numbers of a report, as one tree for JSON: of each model, and of each pair of a model and its base."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from simcse_jax.evaluation.analysis import change
from simcse_jax.evaluation.analysis.measure import Measurement, token_changes
from simcse_jax.evaluation.analysis.tokens import Survey

Pair = tuple[str, str]  # the labels of a model and of the one that it was trained from


def collect(
    models: Mapping[str, str],
    pairs: Sequence[Pair],
    surveys: Mapping[str, Survey],
    found: Mapping[str, Measurement],
    *,
    data: str,
    max_length: int,
) -> dict[str, Any]:
    """The contents of `metrics.json`, as `report.write` takes them.

    Args:
      models: the models' names by their labels, in the order of the report.

    Returns:
      `data`, `sentences` and `protocol`; `models`, a list with the `model`, its `label`, what its tokenizer made of the
      data (`tokens`, `types`, `samples`) and its measurements; `pairs`, a list with the labels `model` and `base` and
      the self-similarity change (eq. 10) of their `tokens`; `correlations`, eq. 11 for every two pairs.
    """
    first = next(iter(surveys.values()))
    return {
        "data": data,
        "sentences": len(first.sentences),
        "protocol": dataclasses.asdict(first.protocol) | {"max_length": max_length},
        "models": [
            {"model": name, "label": label, **_size(surveys[label]), **found[label].to_json()}
            for label, name in models.items()
        ],
        **_changes({pair: token_changes(surveys[pair[0]], found[pair[0]], found[pair[1]]) for pair in pairs}),
    }


def _size(survey: Survey) -> dict[str, int]:
    return {"tokens": int(survey.units.sum()), "types": len(survey.names), "samples": len(survey.sample)}


def _changes(changes: Mapping[Pair, Sequence[change.TokenChange]]) -> dict[str, Any]:
    """The tokens of each pair, and the correlation of every two pairs."""
    pairs = []
    for (model, base), tokens in changes.items():
        rows = [{**dataclasses.asdict(token), "change": round(token.change, 6)} for token in tokens]
        more, less = change.most_changed(tokens)
        pairs.append({"model": model, "base": base, "tokens": rows})
        pairs[-1] |= {"more_contextualized": more, "less_contextualized": less}
    correlations = []
    for one, other in itertools.combinations(changes, 2):
        both = change.correlation(changes[one], changes[other])
        by_n = [None if r is None else round(r, 6) for r in both.by_n]
        about = {"pairs": [list(one), list(other)]}
        correlations.append(about | {"by_n": by_n, "best_n": both.best_n, "best": round(both.best, 6)})
    return {"pairs": pairs, "correlations": correlations}
