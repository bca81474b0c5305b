import dataclasses

import numpy as np
import pytest
from support.fake_encoder import LAYERS, FakeEncoder

from simcse_jax.analysis.measure import measure, token_changes
from simcse_jax.analysis.metrics import collect
from simcse_jax.analysis.protocol import Protocol
from simcse_jax.analysis.tokens import survey

SENTENCES = ["".join(letters) for letters in np.random.default_rng(0).choice(list("abcdefghijkl "), (40, 12))]


@pytest.fixture(scope="module")
def measured():
    """Surveys and measurements of three models, by their names."""
    encoders = {name: FakeEncoder(seed) for seed, name in enumerate(("tuned", "base", "other"))}
    surveys = {name: survey(encoder, SENTENCES, Protocol(min_count=2)) for name, encoder in encoders.items()}
    return surveys, {name: measure(encoder, surveys[name]) for name, encoder in encoders.items()}


def test_a_model_alone_has_its_own_numbers(measured):
    surveys, found = measured
    metrics = collect([["tuned"]], surveys, found, data="letters.txt", max_length=9)
    assert (metrics["model"], metrics["compare"], metrics["data"]) == ("tuned", None, "letters.txt")
    assert {**metrics, **found["tuned"].to_json()} == metrics and len(metrics["layers"]) == LAYERS + 1
    asked = dataclasses.asdict(Protocol(min_count=2, samples=len(surveys["tuned"].sample)))
    assert metrics["protocol"] == asked | {"max_length": 9}
    assert metrics["tokens"] == surveys["tuned"].units.sum() and metrics["types"] == len(surveys["tuned"].names)
    assert not {"base", "self_similarity_change", "correlation"} & set(metrics)


def test_a_pair_has_the_changes_of_its_tokens(measured):
    metrics = collect([["tuned", "base"]], *measured, data="letters.txt", max_length=9)
    assert (metrics["compare"], metrics["base"]) == ("base", measured[1]["base"].to_json())
    surveys, found = measured
    rows = metrics["self_similarity_change"]["tokens"]
    expected = token_changes(surveys["tuned"], found["tuned"], found["base"])
    assert [row["token"] for row in rows] == [token.token for token in expected]
    assert [row["change"] for row in rows] == pytest.approx([token.change for token in expected], abs=1e-6)
    assert "correlation" not in metrics


def test_two_pairs_have_a_correlation(measured):
    pairs = [["tuned", "base"], ["tuned", "base"]]
    same = collect(pairs, *measured, data="letters.txt", max_length=9)["correlation"]
    assert (same["models"], same["best"]) == (pairs, 1.0)
    pairs = [["tuned", "base"], ["other", "base"]]
    other = collect(pairs, *measured, data="letters.txt", max_length=9)["correlation"]
    assert other["best"] < 1 and other["by_n"][other["best_n"] - 1] == other["best"]
