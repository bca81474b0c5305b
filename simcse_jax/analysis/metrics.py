"""All numbers of a report, as one tree for JSON: of a model, of the one it is compared with, and of two such pairs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simcse_jax.analysis import change
from simcse_jax.analysis.measure import Measurement, token_changes
from simcse_jax.analysis.tokens import Survey


def collect(
    pairs: Sequence[Sequence[str]],
    surveys: Mapping[str, Survey],
    found: Mapping[str, Measurement],
    *,
    data: str,
    max_length: int,
) -> dict[str, Any]:
    """The contents of `metrics.json`, as `report.write` takes them.

    Args:
      pairs: the names of the model and of the one it is compared with, if any; then of another such pair, if any.
      surveys: the data by the tokenizer of each model named.
      found: the measurements of each model named.
      data: the name of the data.
      max_length: how many tokens of a sentence were read.

    Raises:
      UserError: when the changes in two pairs of models cannot be correlated.
    """
    model, *base = pairs[0]
    survey = surveys[model]
    protocol = dataclasses.asdict(survey.protocol) | {"samples": len(survey.sample), "max_length": max_length}
    metrics = {
        "model": model,
        "compare": base[0] if base else None,
        "data": data,
        "sentences": len(survey.sentences),
        "tokens": int(survey.units.sum()),
        "types": len(survey.names),
        "protocol": protocol,
        **found[model].to_json(),
    }
    if not base:
        return metrics
    changes, *others = (token_changes(surveys[tuned], found[tuned], found[before]) for tuned, before in pairs)
    more, less = change.most_changed(changes)
    rows = [{**dataclasses.asdict(token), "change": round(token.change, 6)} for token in changes]
    listed = {"tokens": rows, "more_contextualized": more, "less_contextualized": less}
    metrics |= {"base": found[base[0]].to_json(), "self_similarity_change": listed}
    if others:
        both = change.correlation(changes, others[0])
        by_n = [None if r is None else round(r, 6) for r in both.by_n]
        about = {"models": [list(pair) for pair in pairs]}
        metrics["correlation"] = about | {"by_n": by_n, "best_n": both.best_n, "best": round(both.best, 6)}
    return metrics
