from collections import Counter
from itertools import combinations

from support.data import change

from simcse_jax.data.augment import crop, delete, delete_one
from simcse_jax.data.draws import row_generator

TEN = [f"w{number}" for number in range(10)]


def draws(operation, words, *args, count=400):
    return Counter(" ".join(operation(words, *args, row_generator(5, row, 1))) for row in range(count))


def test_changes_keep_a_share_of_words_by_seed_row_and_column_alone():
    # Of each, 100, 40 and 100 are expected.
    found = draws(crop, TEN, 30)
    assert set(found) == {" ".join(TEN[start : start + 7]) for start in range(4)} and min(found.values()) > 60
    found = draws(delete, TEN[:5], 40)
    assert set(found) == {" ".join(kept) for kept in combinations(TEN[:5], 3)} and min(found.values()) > 15
    found = draws(delete_one, TEN[:4])
    assert set(found) == {" ".join(kept) for kept in combinations(TEN[:4], 3)} and min(found.values()) > 60
    assert delete(["a"] * 10, 30, row_generator(0, 0, 0)) == ["a"] * 7  # the same word twice is two words
    expected = {(10, 10): 9, (4, 10): 4, (5, 10): 4, (14, 10): 13, (15, 10): 13, (10, 33): 7, (3, 99): 1, (1, 99): 1}
    for (words, percent), left in (expected | {(0, 50): 0}).items():
        for operation in (crop, delete):
            assert len(operation(["word"] * words, percent, row_generator(0, 0, 0))) == left
    for name in ("crop", "delete", "delete_one"):
        texts = [" ".join(TEN)] * 40
        once = change(texts, name, 30)
        assert once == change(texts, name, 30) and once[:7] == change(texts[:7], name, 30)
        assert once[1:] == change(["other words", *texts[1:]], name, 30)[1:]
        assert len(set(once)) > 3  # rows differ
        assert once != change(texts, name, 30, seed=2) and once != change(texts, name, 30, column=0)
        assert change(["word", "  word ", "", " "], name, 90) == ["word", "word", "", ""]
