import dataclasses
import itertools

import numpy as np
import pytest
from support.data import raises
from support.fake_encoder import LAYERS, SIZE, FakeEncoder

from simcse_jax.evaluation.analysis import measure as module
from simcse_jax.evaluation.analysis.measure import collect, measure, token_changes
from simcse_jax.evaluation.analysis.tokens import Protocol, survey

LETTERS = "abcdefgh"


def sentences(count: int = 30) -> list[str]:
    generator = np.random.default_rng(0)

    def word() -> str:
        return "".join(generator.choice(list(LETTERS), generator.integers(1, 3)))

    made = [" ".join(word() for _ in range(generator.integers(1, 7))) for _ in range(count)]
    return [*made, *made[:3]]


def cosines(rows, others=None) -> np.ndarray:
    rows = np.array(rows, np.float64)
    others = rows if others is None else np.array(others, np.float64)
    return rows @ others.T / (np.linalg.norm(rows, axis=1)[:, None] * np.linalg.norm(others, axis=1))


def off_diagonal(matrix) -> float:
    n = len(matrix)
    return (matrix.sum() - np.trace(matrix)) / (n * (n - 1))


def by_hand(encoder: FakeEncoder, data: list[str], protocol: Protocol) -> dict[str, object]:
    """Everything with all embeddings in memory and every pair looked at."""
    data = list(dict.fromkeys(data)) if protocol.repeated_sentences == "drop" else data
    embeddings, names = [], []
    for sentence in data:
        ids, words = encoder.tokenize([sentence])[0][0]
        states = encoder.states(sentence).astype(np.float64)
        groups: list[list[int]] = []
        for place, word in enumerate(words):
            if protocol.units == "words" and groups and word >= 0 and words[groups[-1][-1]] == word:
                groups[-1].append(place)
            elif word >= 0 or protocol.special_tokens == "in":
                groups.append([place])
        embeddings.append([states[:, group].mean(axis=1) for group in groups])
        texts = ["".join(encoder.token(ids[place]) for place in group) for group in groups]
        names.append([text.replace("##", "") if protocol.units == "words" else text for text in texts])
    every = [name for row in names for name in row]
    found = {}
    for name in dict.fromkeys(every):
        places = [
            (row, place)
            for row in range(len(data))
            for place, other in enumerate(names[row])
            if other == name and (protocol.occurrences == "all" or name not in names[row][:place])
        ]
        if every.count(name) >= protocol.min_count and len(places) > 1:
            found[name] = [embeddings[row][place] for row, place in places]
    frequent = sorted(found, key=lambda name: -every.count(name))[: protocol.max_types]
    per_layer = range(LAYERS + 1)
    matrices = {name: [cosines([e[layer] for e in found[name]]) for layer in per_layer] for name in frequent}
    types = np.array([[off_diagonal(matrices[name][layer]) for name in frequent] for layer in per_layer])
    pairs = np.array([len(found[name]) * (len(found[name]) - 1) for name in frequent])
    rows = [np.array(row) for row in embeddings if len(row)]  # (U, L + 1, D)
    intra = [[cosines(row[:, i], [row[:, i].mean(axis=0)]).mean() for i in per_layer] for row in rows]
    # Contributions to the last layer's self-similarity.
    per_type, weights = [], []
    for name in frequent:
        units = np.array([e[-1] / np.linalg.norm(e[-1]) for e in found[name]])
        if protocol.contributions == "shares":
            part = np.mean([u * v for u, v in itertools.product(units, repeat=2)], axis=0)
            per_type.append(part / part.sum())
        else:
            per_type.append(np.mean([u * v for u, v in itertools.combinations(units, 2)], axis=0))
        weights.append(len(units) * (len(units) - 1) if protocol.contributions == "pairs" else 1)
    return {
        "names": frequent,
        "types": types,
        "self_similarity": np.average(types, axis=1, weights=pairs if protocol.average == "pairs" else None),
        "intra": np.mean(intra, axis=0),
        "dimensions": np.average(per_type, axis=0, weights=weights),
        "embeddings": embeddings,
    }


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"special_tokens": "out"},
        {"units": "words", "special_tokens": "out", "occurrences": "all", "min_count": 2},
        {"units": "words", "repeated_sentences": "drop", "average": "pairs", "contributions": "types"},
        {"contributions": "pairs", "max_types": 4, "samples": 10, "seed": 3, "ranking": "cosines"},
        {"ranking": "self_similarity", "min_count": 9},
    ],
)
def test_the_sums_give_what_all_pairs_give(change, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 7)
    protocol, encoder, data = Protocol(**change), FakeEncoder(), sentences()
    surveyed = survey(encoder, data, protocol)
    found, expected = measure(encoder, surveyed), by_hand(encoder, data, protocol)
    assert surveyed.names == expected["names"] and len(surveyed.names) >= 4
    assert found.types == pytest.approx(expected["types"], abs=1e-9)
    assert found.self_similarity == pytest.approx(expected["self_similarity"], abs=1e-9)
    assert found.intra_sentence_similarity == pytest.approx(expected["intra"], abs=1e-9)
    assert found.dimensions == pytest.approx(expected["dimensions"], abs=1e-9)

    baseline = np.array([expected["embeddings"][row][place] for row, place in surveyed.sample.items()])
    assert len(baseline) == min(protocol.samples, len(surveyed.sentences))
    means = [off_diagonal(cosines(baseline[:, layer])) for layer in range(LAYERS + 1)]
    assert found.anisotropy == pytest.approx(means, abs=1e-6)  # the sample is kept in float32
    assert found.l2_norm == pytest.approx(np.linalg.norm(baseline, axis=2).mean(axis=0), rel=1e-6)
    last = baseline[:, -1]
    normalized = last / np.linalg.norm(last, axis=1, keepdims=True)
    random_pairs = np.mean([u * v for u, v in itertools.combinations(normalized, 2)], axis=0)
    assert found.dimensions_random_pairs == pytest.approx(random_pairs, abs=1e-6)
    ranks = {"products": last.mean(axis=0) ** 2, "cosines": random_pairs, "self_similarity": found.dimensions}
    kept = np.argsort(-ranks[protocol.ranking])[5:]
    lower = np.tril_indices(len(last), -1)
    r = np.corrcoef(cosines(last)[lower], cosines(last[:, kept])[lower])[0, 1]
    assert found.informativity[5] == pytest.approx(r**2, abs=1e-5)
    assert list(found.informativity) == [k for k in (1, 2, 3, 5, 10) if k < SIZE]


def test_what_is_written_of_a_layer_and_how_tokens_change_against_the_anisotropy_of_both_models():
    encoder = FakeEncoder()
    found = measure(encoder, survey(encoder, sentences(300), Protocol()))
    assert encoder.most_alive <= 2  # no more than a sentence is held at a time
    surveys = (survey(encoder, sentences(), Protocol(samples=10, seed=seed)) for seed in (1, 1, 2))
    first, again, other = (measure(encoder, each).anisotropy.tolist() for each in surveys)
    assert first == again != other
    raises("not finite", measure, FakeEncoder(scale=np.inf), survey(encoder, sentences(), Protocol()))
    numbers = found.to_json()
    assert [row["layer"] for row in numbers["layers"]] == [0, 1, 2, 3]
    row = numbers["layers"][2]
    assert row["anisotropy"] == pytest.approx(found.anisotropy[2], abs=1e-6)
    for name in ("self_similarity", "intra_sentence_similarity"):
        assert row[f"adjusted_{name}"] == pytest.approx(row[name] - row["anisotropy"], abs=2e-6)
    assert [part["k"] for part in numbers["informativity"]] == [1, 2, 3, 5, 10]
    for field in ("dimensions", "dimensions_random_pairs"):
        assert numbers[field]["top_share"] == numbers[field]["cumulated"][:3]
        assert set(numbers[field]["needed"]) == {"10", "20", "50"} and len(numbers[field]["cumulated"]) == SIZE
    tuned, base = FakeEncoder(1, scale=0.2), FakeEncoder(2, scale=3.0)
    data = sentences()
    surveys = [survey(encoder, data, Protocol()) for encoder in (tuned, base)]
    after, before = (measure(encoder, found) for encoder, found in zip((tuned, base), surveys, strict=True))
    changes = token_changes(surveys[0], after, before)[:5]
    assert [change.token for change in changes] == surveys[0].names[:5]
    assert [change.count for change in changes] == surveys[0].counts[:5].tolist()
    assert [change.special for change in changes] == [True, False, False, False, False]
    expected = (after.types[-1, 3] - after.anisotropy[-1]) - (before.types[-1, 3] - before.anisotropy[-1])
    assert changes[3].change == pytest.approx(expected)
    assert all(change.change > 0 for change in changes)  # the first model hardly looks at the context


@pytest.fixture(scope="module")
def measured():
    """Surveys and measurements of three models, by their names."""
    data = ["".join(letters) for letters in np.random.default_rng(0).choice(list("abcdefghijkl "), (40, 12))]
    encoders = {name: FakeEncoder(seed) for seed, name in enumerate(("tuned", "base", "other"))}
    surveys = {name: survey(encoder, data, Protocol(min_count=2)) for name, encoder in encoders.items()}
    return surveys, {name: measure(encoder, surveys[name]) for name, encoder in encoders.items()}


def collected(measured, *pairs: tuple[str, str]) -> dict:
    surveys, found = measured
    models = {label: f"models/{label}" for label in found}
    return collect(models, pairs, surveys, found, data="letters.txt", max_length=9)


def test_every_model_has_its_numbers_a_pair_its_changes_and_two_pairs_a_correlation(measured):
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
    surveys, measurements = measured
    pairs = [("tuned", "base"), ("other", "base"), ("tuned", "other")]
    metrics = collected(measured, *pairs)
    pair, found = metrics["pairs"][0], metrics["correlations"]
    expected = token_changes(surveys["tuned"], measurements["tuned"], measurements["base"])
    assert (pair["model"], pair["base"]) == ("tuned", "base") and len(metrics["pairs"]) == 3
    assert [row["token"] for row in pair["tokens"]] == [token.token for token in expected]
    assert [row["change"] for row in pair["tokens"]] == pytest.approx([token.change for token in expected], abs=1e-6)
    assert [both["pairs"] for both in found] == [[*map(list, two)] for two in itertools.combinations(pairs, 2)]
    assert all(both["best"] < 1 and both["by_n"][both["best_n"] - 1] == both["best"] for both in found)
    assert collected(measured, pairs[0])["correlations"] == []
    with pytest.warns(
        UserWarning, match="base → tuned and tuned → tuned: .*nothing correlates"
    ):  # not an error after all the encoding
        assert collected(measured, pairs[0], ("tuned", "tuned"))["correlations"] == []
