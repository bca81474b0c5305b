import dataclasses

import numpy as np
import pytest
from support.data import raises
from support.fake_encoder import FakeEncoder

from simcse_jax.evaluation.analysis import tokens
from simcse_jax.evaluation.analysis.tokens import CHOICES, Protocol, TokenChange, correlation


def test_units_and_types_are_found_the_most_frequent_first_without_rare_ones(monkeypatch):
    defaults = {name: next(iter(values)) for name, values in CHOICES.items()}
    assert {name: getattr(Protocol(), name) for name in CHOICES} == defaults
    Protocol(min_count=2, max_types=1, samples=3, seed=0)
    for name, value in (("units", "letters"), ("min_count", 1), ("max_types", 0), ("samples", 2), ("seed", -1)):
        raises(f"{name}={value}: must be ", Protocol, **{name: value})
    assert units("ab c") == (["<s>", "a", "##b", "c", "<s>"], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert units("ab c", special_tokens="out") == (["a", "##b", "c"], [1, 2, 3], [0, 1, 2])
    assert units("ab c", units="words") == (["<s>", "ab", "c", "<s>"], [0, 1, 2, 3, 4], [0, 1, 3, 4])
    assert units("ab c", units="words", special_tokens="out") == (["ab", "c"], [1, 2, 3], [0, 2])
    assert units("", units="words") == (["<s>", "<s>"], [0, 1], [0, 1])
    assert units("", units="words", special_tokens="out") == ([], [], [])
    found = tokens.survey(FakeEncoder(), ["b a", "a a c", "ca", " "], ALL)
    assert found.sentences == ["b a", "a a c", "ca"]  # without the blank one
    expected = [("<s>", 6, True), ("a", 3, False), ("c", 2, False)]
    assert list(zip(found.names, found.counts.tolist(), found.special.tolist(), strict=True)) == expected
    assert found.units.tolist() == [4, 5, 4] and list(found.numbers.values()) == [0, 1, 2]
    """`a` is there twice, in one sentence: one context if the first of a sentence alone counts."""
    data = ["a a b", "b c", "d"]
    assert tokens.survey(FakeEncoder(), data, ALL).names == ["<s>", "a", "b"]
    assert tokens.survey(FakeEncoder(), data, Protocol(min_count=2)).names == ["<s>", "b"]
    assert tokens.survey(FakeEncoder(), ["a a b", "b a", "c"], Protocol(min_count=3)).names == ["<s>", "a"]
    data = ["a b", "a b", "a c"]
    assert tokens.survey(FakeEncoder(), data, Protocol(min_count=3)).names == ["<s>", "a"]
    assert tokens.survey(FakeEncoder(), data, dataclasses.replace(ALL, max_types=2)).names == ["<s>", "a"]
    data = ["a b", "c d", "e", "a b"]
    assert tokens.survey(FakeEncoder(), data, ALL).sentences == data
    found = tokens.survey(FakeEncoder(), data, dataclasses.replace(ALL, repeated_sentences="drop"))
    assert (found.sentences, found.names) == (["a b", "c d", "e"], ["<s>"])
    monkeypatch.setattr(tokens, "CHUNK", 3)
    data = [f"a {letter}" for letter in "abcdefgh"] + ["x" * 41, "y" * 42]
    found = tokens.survey(FakeEncoder(), data, ALL)
    assert dict(zip(found.names, found.counts.tolist(), strict=True)) == {"<s>": 20, "a": 9, "##x": 40, "##y": 41}
    assert (len(found.units), found.cut) == (10, 2)


def changed(changes, names=None, special=()) -> list[TokenChange]:
    names = names or [f"t{n}" for n in range(len(changes))]
    rows = zip(names, changes, strict=True)
    return [TokenChange(name, 100 - n, change, name in special) for n, (name, change) in enumerate(rows)]


def test_what_changed_most_is_told_by_sign_and_correlated_over_the_most_frequent_tokens():
    found = tokens.most_changed(changed([0.1, -0.3, 0.5, -0.1, 0.0], ["a", "b", "c", "d", "e"]), 2)
    assert found == (["b", "d"], ["c", "a"])
    assert tokens.most_changed(changed([0.1, 0.2], ["a", "b"])) == ([], ["b", "a"])
    generator = np.random.default_rng(0)
    first = generator.normal(size=80)
    second = 3 * first + 0.5
    second[30:] = generator.normal(size=50)
    found = correlation(changed(first), changed(second))
    assert len(found.by_n) == 80 and found.by_n[0] is None
    assert found.by_n[:30][1:] == pytest.approx([1] * 29)
    assert found.by_n[59] == pytest.approx(np.corrcoef(first[:60], second[:60])[0, 1], abs=1e-12)
    noisy = 3 * first + 0.5 + np.r_[generator.normal(size=12), np.zeros(18), generator.normal(size=50) * 9]
    found = correlation(changed(first), changed(noisy))
    assert found.best_n == 10 + int(np.argmax(found.by_n[9:])) and found.best == max(found.by_n[9:])
    assert 20 < found.best_n <= 32
    assert correlation(changed([1, 2, *first]), changed([3, 4, *second[::-1]])).best_n >= 10  # two always correlate
    words = [f"w{n}" for n in range(12)]
    changes = np.random.default_rng(1).normal(size=12).tolist()
    first = changed([9.0, *changes, 8.0], ["[CLS]", *words, "<s>"], special=["[CLS]"])
    shuffled = [4, 2, 0, 1, 3, *range(5, 12)]
    texts = ["[CLS]", "<s>", *(words[n] for n in shuffled), "own"]
    second = changed([-9.0, 7.0, *(changes[n] for n in shuffled), 5.0], texts, special=["<s>"])
    found = correlation(first, second)
    assert len(found.by_n) == 12 and found.best == pytest.approx(1)
    assert correlation(changed(range(10)), changed(range(10))).best_n == 10
    raises("9 frequent tokens in common", correlation, changed(range(9)), changed(range(9)))
    raises("no token's self-similarity changes", correlation, changed([0.5] * 20), changed(range(20)))


ALL = Protocol(min_count=2, occurrences="all")


def units(sentence: str, **choices) -> tuple[list[str], list[int], list[int]]:
    encoder = FakeEncoder()
    found = tokens.find_units(*encoder.tokenize([sentence])[0][0], Protocol(**choices))
    return [tokens._name([*map(encoder.token, type_)]) for type_ in found.types], *map(list, found[1:])


def test_the_baseline_has_a_token_each_of_random_sentences_and_something_must_repeat():
    units = np.array([3, 0, 1, 5, 2])
    found = tokens.draw(units, 3, 0)
    assert len(found) == 3 and all(0 <= place < units[row] for row, place in found.items())
    assert found == tokens.draw(units, 3, 0)
    assert len({tuple(tokens.draw(units, 3, seed).items()) for seed in range(20)}) > 5
    assert sorted(tokens.draw(units, 1000, 0)) == [0, 2, 3, 4]  # all that have any
    places = [tokens.draw(np.array([1000]), 1, seed)[0] for seed in range(200)]
    assert 400 < np.mean(places) < 600 and len(set(places)) > 150
    for data, choices, message in (
        ([], {}, "file: has 0 sentences to"),
        (["a", " ", ""], {}, "file: has 1 sentences to"),
        (["a", "a"], {"repeated_sentences": "drop"}, "file: has 1 sentences to"),
        (["a b", "a c"], {}, "file: has 2 sentences to measure"),
        (["ab", "cd", "ef"], {"special_tokens": "out", "min_count": 2}, "no token occurs 2 times"),
        (["a b", "a c", "a d"], {"min_count": 9}, "file: no token occurs 9 times"),
    ):
        raises(message, tokens.survey, FakeEncoder(), data, Protocol(**choices), "file")


def test_models_are_compared_only_if_they_make_the_same_tokens():
    class Other(FakeEncoder):
        def token(self, number: int) -> str:
            return super().token(number).upper()

    data = ["ab a", "b a", "a"]
    one, other = tokens.survey(FakeEncoder(), data, ALL), tokens.survey(Other(), data, ALL)
    tokens.check_same_tokens({"one": one, "again": tokens.survey(FakeEncoder(5), data, ALL)})
    raises("one and other have different tokenizers", tokens.check_same_tokens, {"one": one, "other": other})
