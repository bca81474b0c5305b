import dataclasses
import itertools

import numpy as np
import pytest
from support.fake_encoder import LAYERS, FakeEncoder

from simcse_jax.evaluation.analysis.measure import measure, token_changes
from simcse_jax.evaluation.analysis.metrics import collect
from simcse_jax.evaluation.analysis.protocol import Protocol
from simcse_jax.evaluation.analysis.tokens import survey

SENTENCES = ["".join(letters) for letters in np.random.default_rng(0).choice(list("abcdefghijkl "), (40, 12))]


@pytest.fixture(scope="module")
def measured():
    """Surveys and measurements of three models, by their names."""
    encoders = {name: FakeEncoder(seed) for seed, name in enumerate(("tuned", "base", "other"))}
    surveys = {name: survey(encoder, SENTENCES, Protocol(min_count=2)) for name, encoder in encoders.items()}
    return surveys, {name: measure(encoder, surveys[name]) for name, encoder in encoders.items()}


def collected(measured, *pairs: tuple[str, str]) -> dict:
    surveys, found = measured
    models = {label: f"models/{label}" for label in found}
    return collect(models, pairs, surveys, found, data="letters.txt", max_length=9)


def test_every_model_has_its_own_numbers(measured):
    surveys, found = measured
    metrics = collected(measured)
    assert (metrics["data"], metrics["sentences"]) == ("letters.txt", 40)
    assert metrics["protocol"] == dataclasses.asdict(Protocol(min_count=2)) | {"max_length": 9}
    assert [model["label"] for model in metrics["models"]] == ["tuned", "base", "other"]
    for model in metrics["models"]:
        survey, numbers = surveys[model["label"]], found[model["label"]].to_json()
        assert {**model, **numbers} == model and len(model["layers"]) == LAYERS + 1
        assert model["model"] == f"models/{model['label']}"
        assert (model["tokens"], model["types"], model["samples"]) == (survey.units.sum(), len(survey.names), 40)
    assert metrics["pairs"] == metrics["correlations"] == []


def test_a_pair_has_the_changes_of_its_tokens(measured):
    surveys, found = measured
    metrics = collected(measured, ("tuned", "base"))
    (pair,) = metrics["pairs"]
    expected = token_changes(surveys["tuned"], found["tuned"], found["base"])
    assert (pair["model"], pair["base"]) == ("tuned", "base")
    assert [row["token"] for row in pair["tokens"]] == [token.token for token in expected]
    assert [row["change"] for row in pair["tokens"]] == pytest.approx([token.change for token in expected], abs=1e-6)
    assert metrics["correlations"] == []


def test_every_two_pairs_have_a_correlation(measured):
    pairs = [("tuned", "base"), ("other", "base"), ("tuned", "other")]
    found = collected(measured, *pairs)["correlations"]
    assert [both["pairs"] for both in found] == [
        [list(one), list(other)] for one, other in itertools.combinations(pairs, 2)
    ]
    for both in found:
        assert both["best"] < 1 and both["by_n"][both["best_n"] - 1] == both["best"]
