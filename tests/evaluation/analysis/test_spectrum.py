import math

import numpy as np
import pytest

from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.evaluation.analysis.spectrum import NUMBERS, TERMS, Spectrum


def vectors(rows: int, shift: float = 0.5, size: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size)) + shift


def unit(rows):
    return [row / math.sqrt(sum(row * row)) for row in rows]


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_the_terms_are_their_formulas(block, monkeypatch):
    monkeypatch.setattr(spectrum, "BLOCK", block)
    for temperature in (0.05, 1.0):
        rows, under = vectors(17), vectors(17, seed=1)
        h, g, m = unit(rows), unit(under), 17

        def summed(one, other, pairs, temperature=temperature):
            return [sum(math.exp(float(sum(a * b)) / temperature) for j, b in pairs(i, other)) for i, a in one]

        def others(i, sides):
            return [(j, x) for j, x in enumerate(sides) if j != i]

        for second, given in ((h, ()), (g, (under,))):  # h_j without dropout, or under another mask
            expected = sum(math.log(total / (m - 1)) for total in summed(enumerate(h), second, others)) / m
            assert spectrum.uniformity_term(rows, temperature, *given) == pytest.approx(expected, abs=1e-9)
        expected = sum(math.log(total / m) for total in summed(enumerate(h), h, lambda _, x: enumerate(x))) / m
        assert spectrum.uniformity_with_self(rows, temperature) == pytest.approx(expected, abs=1e-9)
        expected = sum(float(sum(a * b)) for a in h for b in h) / (temperature * m * m)
        assert spectrum.uniformity_bound(rows, temperature) == pytest.approx(expected, abs=1e-9)
        expected = -sum(float(sum(a * b)) for a, b in zip(h, g, strict=True)) / m / temperature
        assert spectrum.alignment_term(rows, under, temperature) == pytest.approx(expected, abs=1e-9)


def test_the_terms_where_they_are_known():
    same, across = np.ones((4, 3)), np.eye(4)
    assert spectrum.alignment_term(same, 2 * same, 0.05) == pytest.approx(-20)  # at its best
    assert spectrum.alignment_term(across[:2], across[2:], 0.05) == 0
    # All sentences in one place: both terms and the bound are 1/τ.
    for term in (spectrum.uniformity_term, spectrum.uniformity_with_self, spectrum.uniformity_bound):
        assert term(same, 0.05) == pytest.approx(20)
    # At right angles: the others' similarity is 0; a row has 1/τ once, itself, and 0 three times.
    assert spectrum.uniformity_term(across, 1e-3) == pytest.approx(0)
    assert spectrum.uniformity_with_self(across, 0.5) == pytest.approx(math.log((math.e**2 + 3) / 4))
    assert spectrum.uniformity_bound(across, 0.5) == pytest.approx(2 / 4)
    assert spectrum.uniformity_with_self(across, 1e-3) == pytest.approx(1000 - math.log(4))  # e^1000 is too large
    assert spectrum.uniformity_floor(4, 1e-3) == pytest.approx(1000 - math.log(4))
    # Opposite, each of two sentences has one other: −1/τ.
    assert spectrum.uniformity_term(np.array([[1.0, 0.0], [-2.0, 0.0]]), 0.05) == pytest.approx(-20)


@pytest.mark.parametrize("count", [64, 1024])
def test_with_itself_the_term_of_random_embeddings_is_little_more_than_its_floor(count):
    rows = vectors(count, shift=0, size=384)
    assert 0 < spectrum.uniformity_with_self(rows, 0.05) - spectrum.uniformity_floor(count, 0.05) < 0.02
    assert spectrum.uniformity_term(rows, 0.05) < 1 < spectrum.uniformity_floor(count, 0.05)


def test_singular_values_and_effective_rank_are_their_formulas():
    assert spectrum.effective_rank(np.array([3.0, 3, 3, 0, 0])) == pytest.approx(3)
    assert spectrum.effective_rank(np.array([1.0, 0, 0])) == pytest.approx(1)
    assert (spectrum.effective_rank(np.zeros(3)), spectrum.entropy(np.zeros(3))) == (0, 0)
    p = np.array([0.5, 0.25, 0.25])
    assert spectrum.entropy(8 * p) == pytest.approx(1.5 * math.log(2))  # 1.5 bits
    assert spectrum.effective_rank(8 * p) == pytest.approx(2**1.5)
    rows = np.array([[3.0, 0.0], [0.5, 0.0], [0.0, 2.0]])  # normalized: twice (1, 0) and once (0, 1)
    assert spectrum.singular_values(rows) == pytest.approx([math.sqrt(2), 1.0], abs=1e-12)
    assert spectrum.singular_values(np.ones((4, 3))) == pytest.approx([2.0, 0.0, 0.0], abs=1e-9)
    rows = vectors(12)
    w, values = np.array(unit(rows)), spectrum.singular_values(rows)
    assert values**2 == pytest.approx(np.linalg.eigvalsh(w.T @ w)[::-1], abs=1e-9)
    assert len(spectrum.singular_values(rows[:3])) == 3


def test_what_is_measured_and_its_mean_over_the_steps_that_all_seeds_have():
    rows, others = vectors(9), vectors(9, seed=1)
    found = spectrum.measure(rows, (rows, others), 0.05, (rows, others))
    values = spectrum.singular_values(rows)
    assert set(found.numbers) == set(NUMBERS)
    assert found.numbers["top_eigenvalue"] == pytest.approx(values[0] ** 2)
    assert found.singular_values == pytest.approx(values / values[0])
    assert found.numbers["singular_value_entropy"] == pytest.approx(math.log(found.numbers["effective_rank"]))
    without = {name: value for name, value in found.numbers.items() if "alignment" not in name and "drop" not in name}
    assert spectrum.measure(rows, None, 0.05).numbers == without
    assert set(spectrum.measure(rows, (rows, others)).numbers) == set(NUMBERS[len(TERMS) :])

    def of(value: float, **more: float) -> Spectrum:
        return Spectrum({"top_eigenvalue": value, **more}, np.array([1.0, value / 10]))

    found = spectrum.mean_of([{0: of(1), 5: of(2, alignment_term=3)}, {5: of(4), 9: of(1)}])
    assert list(found) == [5]
    assert found[5].numbers == {"top_eigenvalue": 3.0}
    assert found[5].singular_values == pytest.approx([1.0, 0.3])
