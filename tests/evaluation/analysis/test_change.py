import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis.change import TokenChange, correlation, most_changed, self_similarity_change


def tokens(changes, names=None, special=()) -> list[TokenChange]:
    names = names or [f"t{n}" for n in range(len(changes))]
    rows = zip(names, changes, strict=True)
    return [TokenChange(name, 100 - n, change, name in special) for n, (name, change) in enumerate(rows)]


def test_both_models_are_adjusted_by_their_own_anisotropy():
    tuned, base = np.array([0.9, 0.3]), np.array([0.6, 0.8])
    assert self_similarity_change(tuned, 0.1, base, 0.4) == pytest.approx([0.6, -0.2])


def test_the_tokens_that_changed_most_are_separated_by_the_sign_of_their_change():
    found = most_changed(tokens([0.1, -0.3, 0.5, -0.1, 0.0], ["a", "b", "c", "d", "e"]), 2)
    assert found == (["b", "d"], ["c", "a"])
    assert most_changed(tokens([0.1, 0.2], ["a", "b"])) == ([], ["b", "a"])


def test_the_correlation_is_looked_for_over_the_most_frequent_tokens():
    """The first 30 tokens change alike in both pairs, those after them do not."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=80)
    second = 3 * first + 0.5
    second[30:] = generator.normal(size=50)
    found = correlation(tokens(first), tokens(second))
    assert len(found.by_n) == 80 and found.by_n[0] is None
    assert found.by_n[:30][1:] == pytest.approx([1] * 29)
    assert found.by_n[59] == pytest.approx(np.corrcoef(first[:60], second[:60])[0, 1], abs=1e-12)
    noisy = 3 * first + 0.5 + np.r_[generator.normal(size=12), np.zeros(18), generator.normal(size=50) * 9]
    found = correlation(tokens(first), tokens(noisy))
    assert found.best_n == 10 + int(np.argmax(found.by_n[9:])) and found.best == max(found.by_n[9:])
    assert 20 < found.best_n <= 32


def test_a_few_tokens_correlate_by_chance_and_are_not_chosen():
    generator = np.random.default_rng(3)
    found = correlation(tokens([1, 2, *generator.normal(size=40)]), tokens([3, 4, *generator.normal(size=40)]))
    assert found.by_n[1] == pytest.approx(1)
    assert found.best_n >= 10 and found.best == max(found.by_n[9:]) < 0.9


def test_tokens_are_the_same_by_their_text_and_special_ones_are_left_out():
    words = [f"w{n}" for n in range(12)]
    changes = np.random.default_rng(1).normal(size=12).tolist()
    first = tokens([9.0, *changes, 8.0], ["[CLS]", *words, "<s>"], special=["[CLS]"])
    shuffled = [4, 2, 0, 1, 3, *range(5, 12)]
    texts = ["[CLS]", "<s>", *(words[n] for n in shuffled), "own"]
    second = tokens([-9.0, 7.0, *(changes[n] for n in shuffled), 5.0], texts, special=["<s>"])
    found = correlation(first, second)
    assert len(found.by_n) == 12 and found.best == pytest.approx(1)


def test_too_few_tokens_in_common_are_refused():
    with pytest.raises(UserError, match="9 frequent tokens in common"):
        correlation(tokens(range(9)), tokens(range(9)))


def test_pairs_in_which_nothing_changes_are_refused():
    with pytest.raises(UserError, match="no token's self-similarity changes"):
        correlation(tokens([0.5] * 20), tokens(range(20)))
