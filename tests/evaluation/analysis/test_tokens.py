import dataclasses

import numpy as np
import pytest
from support.fake_encoder import FakeEncoder

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import tokens
from simcse_jax.evaluation.analysis.protocol import Protocol

ALL = Protocol(min_count=2, occurrences="all")


def units(sentence: str, **choices) -> tuple[list[str], list[int], list[int]]:
    encoder = FakeEncoder()
    found = tokens.find_units(*encoder.tokenize([sentence])[0][0], Protocol(**choices))
    return [tokens._name([*map(encoder.token, type_)]) for type_ in found.types], *map(list, found[1:])


def test_units_are_tokens_or_words_with_the_special_ones_or_without():
    assert units("ab c") == (["<s>", "a", "##b", "c", "<s>"], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert units("ab c", special_tokens="out") == (["a", "##b", "c"], [1, 2, 3], [0, 1, 2])
    assert units("ab c", units="words") == (["<s>", "ab", "c", "<s>"], [0, 1, 2, 3, 4], [0, 1, 3, 4])
    assert units("ab c", units="words", special_tokens="out") == (["ab", "c"], [1, 2, 3], [0, 2])
    assert units("", units="words") == (["<s>", "<s>"], [0, 1], [0, 1])
    assert units("", units="words", special_tokens="out") == ([], [], [])


def test_types_are_counted_the_most_frequent_first():
    found = tokens.survey(FakeEncoder(), ["b a", "a a c", "ca", " "], ALL)
    assert found.sentences == ["b a", "a a c", "ca"]  # without the blank one
    assert list(zip(found.names, found.counts.tolist(), found.special.tolist(), strict=True)) == [
        ("<s>", 6, True),
        ("a", 3, False),
        ("c", 2, False),
    ]
    assert found.units.tolist() == [4, 5, 4] and list(found.numbers.values()) == [0, 1, 2]


def test_a_type_needs_two_contexts():
    """`a` is there twice, in one sentence: one context if the first of a sentence alone counts."""
    data = ["a a b", "b c", "d"]
    assert tokens.survey(FakeEncoder(), data, ALL).names == ["<s>", "a", "b"]
    assert tokens.survey(FakeEncoder(), data, Protocol(min_count=2)).names == ["<s>", "b"]
    assert tokens.survey(FakeEncoder(), ["a a b", "b a", "c"], Protocol(min_count=3)).names == ["<s>", "a"]


def test_rare_types_are_left_out():
    data = ["a b", "a b", "a c"]
    assert tokens.survey(FakeEncoder(), data, Protocol(min_count=3)).names == ["<s>", "a"]
    assert tokens.survey(FakeEncoder(), data, dataclasses.replace(ALL, max_types=2)).names == ["<s>", "a"]


def test_repeated_sentences_are_kept_or_dropped():
    data = ["a b", "c d", "e", "a b"]
    assert tokens.survey(FakeEncoder(), data, ALL).sentences == data
    found = tokens.survey(FakeEncoder(), data, dataclasses.replace(ALL, repeated_sentences="drop"))
    assert (found.sentences, found.names) == (["a b", "c d", "e"], ["<s>"])


def test_all_of_a_large_file_is_counted(monkeypatch):
    monkeypatch.setattr(tokens, "CHUNK", 3)
    data = [f"a {letter}" for letter in "abcdefgh"] + ["x" * 41, "y" * 42]
    found = tokens.survey(FakeEncoder(), data, ALL)
    assert dict(zip(found.names, found.counts.tolist(), strict=True)) == {"<s>": 20, "a": 9, "##x": 40, "##y": 41}
    assert (len(found.units), found.cut) == (10, 2)


def test_the_baseline_has_a_token_each_of_random_sentences():
    units = np.array([3, 0, 1, 5, 2])
    found = tokens.draw(units, 3, 0)
    assert len(found) == 3 and all(0 <= place < units[row] for row, place in found.items())
    assert found == tokens.draw(units, 3, 0)
    assert len({tuple(tokens.draw(units, 3, seed).items()) for seed in range(20)}) > 5
    assert sorted(tokens.draw(units, 1000, 0)) == [0, 2, 3, 4]  # all that have any
    places = [tokens.draw(np.array([1000]), 1, seed)[0] for seed in range(200)]
    assert 400 < np.mean(places) < 600 and len(set(places)) > 150


def test_models_are_compared_only_if_they_make_the_same_tokens():
    class Other(FakeEncoder):
        def token(self, number: int) -> str:
            return super().token(number).upper()

    data = ["ab a", "b a", "a"]
    one, other = tokens.survey(FakeEncoder(), data, ALL), tokens.survey(Other(), data, ALL)
    tokens.check_same_tokens({"one": one, "again": tokens.survey(FakeEncoder(5), data, ALL)})
    with pytest.raises(UserError, match="one and other have different tokenizers"):
        tokens.check_same_tokens({"one": one, "other": other})


def test_pairs_of_models_need_tokens_in_common():
    letters = "a b c d e f g h i"
    first = tokens.survey(FakeEncoder(), [f"{letters} j"] * 3, ALL)
    tokens.check_in_common(first, tokens.survey(FakeEncoder(), [f"{letters} k j"] * 3, ALL))
    with pytest.raises(UserError, match="have 9 frequent tokens in common"):
        tokens.check_in_common(first, tokens.survey(FakeEncoder(), [f"{letters} k"] * 3, ALL))


@pytest.mark.parametrize(
    ("data", "choices", "message"),
    [
        (["a b"], {}, "file: has 1 sentence to measure"),
        ([], {}, "file: has no sentences"),
        (["a", " ", ""], {}, "file: has 1 sentence to"),
        (["a", "a"], {"repeated_sentences": "drop"}, "file: has 1 sentence to"),
        (["a b", "a c"], {}, "file: has 2 sentences to measure; .* takes three"),
        (
            ["ab", "cd", "ef"],
            {"special_tokens": "out", "min_count": 2},
            "file: no token occurs 2 times .* lower --min-count",
        ),
        (["a b", "a c", "a d"], {"min_count": 9}, "file: no token occurs 9 times"),
    ],
)
def test_data_in_which_nothing_repeats_is_refused(data, choices, message):
    with pytest.raises(UserError, match=message):
        tokens.survey(FakeEncoder(), data, Protocol(**choices), "file")
