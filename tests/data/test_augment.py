from collections import Counter
from itertools import combinations

import pytest
from support.data import change

from simcse_jax.data.augment import AUGMENTATIONS, crop, delete, delete_one
from simcse_jax.data.draws import row_generator
from simcse_jax.errors import UserError

TEN = [f"w{number}" for number in range(10)]


def draws(operation, words, *args, count=400):
    return Counter(" ".join(operation(words, *args, row_generator(5, row, 1))) for row in range(count))


def test_crop_keeps_a_random_span():
    found = draws(crop, TEN, 30)
    assert set(found) == {" ".join(TEN[start : start + 7]) for start in range(4)}
    assert min(found.values()) > 60  # 100 of each expected


def test_delete_removes_a_share_of_the_words_and_keeps_their_order():
    found = draws(delete, TEN[:5], 40)
    assert set(found) == {" ".join(kept) for kept in combinations(TEN[:5], 3)}
    assert min(found.values()) > 15  # 40 of each expected


def test_delete_one_removes_any_word():
    found = draws(delete_one, TEN[:4])
    assert set(found) == {" ".join(kept) for kept in combinations(TEN[:4], 3)}
    assert min(found.values()) > 60


@pytest.mark.parametrize(
    ("words", "percent", "left"),
    [(10, 10, 9), (4, 10, 4), (5, 10, 4), (14, 10, 13), (15, 10, 13), (10, 33, 7), (3, 99, 1), (1, 99, 1), (0, 50, 0)],
)
def test_a_share_rounded_to_words(words, percent, left):
    for operation in (crop, delete):
        assert len(operation(["word"] * words, percent, row_generator(0, 0, 0))) == left


def test_the_same_word_twice_is_two_words():
    assert delete(["a"] * 10, 30, row_generator(0, 0, 0)) == ["a"] * 7


@pytest.mark.parametrize("name", ["crop", "delete", "delete_one"])
def test_a_change_depends_on_seed_row_and_column_alone(name):
    texts = [" ".join(TEN)] * 40
    once = change(texts, name, 30)
    assert once == change(texts, name, 30)
    assert once[:7] == change(texts[:7], name, 30)
    others = ["other words", *texts[1:]]
    assert once[1:] == change(others, name, 30)[1:]
    assert len(set(once)) > 3  # rows differ
    assert once != change(texts, name, 30, seed=2)
    assert once != change(texts, name, 30, column=0)


@pytest.mark.parametrize("name", ["crop", "delete", "delete_one"])
def test_sentences_of_no_word_or_one(name):
    assert change(["word", "  word ", "", " "], name, 90) == ["word", "word", "", ""]


@pytest.mark.parametrize("percent", [0.0, 100.0, -1.0, 150.0, float("nan")])
@pytest.mark.parametrize("name", ["crop", "delete", "mlm"])
def test_a_percentage_out_of_range(name, percent):
    with pytest.raises(UserError, match=r"data\.augment\.percent=.*: must be above 0 and below 100"):
        change(["a b"], name, percent, mlm_model="x")


def test_an_unknown_name():
    with pytest.raises(UserError, match=r"data\.augment\.name='shuffle': must be one of crop, delete, delete_one, syn"):
        change(["a b"], "shuffle")
    assert AUGMENTATIONS == ("crop", "delete", "delete_one", "synonym", "mlm")
