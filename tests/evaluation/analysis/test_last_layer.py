import numpy as np
import pytest
from support.fake_encoder import FakeEncoder

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.evaluation.analysis.last_layer import Sample, measure_last_layer, positives
from simcse_jax.evaluation.analysis.measure import measure
from simcse_jax.evaluation.analysis.spectrum import NUMBERS
from simcse_jax.evaluation.analysis.tokens import Protocol, survey
from simcse_jax.evaluation.sts import Pairs

SENTENCES = [f"a b c {letter} {other}" for letter in "defgh" for other in "ijkl"]


def encode(sentences):
    """Two numbers, of the lengths and of the last letters."""
    return np.array([[len(sentence), 110 - ord(sentence[-1])] for sentence in sentences], np.float32)


def test_the_numbers_are_those_of_the_report_and_of_the_geometry_with_positives_above_four():
    tokens = FakeEncoder()
    found = survey(tokens, SENTENCES, Protocol())
    sample = Sample(SENTENCES, [("a b", "a bc d"), ("k", "ijk l")])
    both = encode(SENTENCES), encode(SENTENCES) + np.float32([0.1, 0.2])
    numbers, singular_values = measure_last_layer(encode, tokens, found, sample, 0.05, both)
    expected = measure(tokens, found).to_json()["layers"][-1]
    del expected["layer"]
    assert {name: numbers[name] for name in expected} == expected
    first, second = (np.array([encode([pair[side]])[0] for pair in sample.positives]) for side in (0, 1))
    assert numbers["alignment"] == pytest.approx(geometry.alignment(first, second), abs=1e-6)
    assert numbers["uniformity"] == pytest.approx(geometry.uniformity(encode(SENTENCES)), abs=1e-6)
    flat = spectrum.measure(encode(SENTENCES), (first, second), 0.05, both)
    assert {name: numbers[name] for name in NUMBERS} == pytest.approx(flat.numbers, abs=1e-6)
    assert singular_values == pytest.approx(flat.singular_values, abs=1e-5)
    assert len(numbers) == 8 + len(NUMBERS)
    without = measure_last_layer(encode, tokens, found, Sample(SENTENCES, []), 0.05).analysis
    assert without == {name: x for name, x in numbers.items() if not name.startswith(("alignment", "dropout"))}

    def pairs(*gold):
        names = [str(score) for score in gold]
        return Pairs(names, [name + "!" for name in names], np.array(gold, float), {})

    assert positives(pairs(0, 4.0, 4.2, 3, 5, 4.8), 9) == [("4.2", "4.2!"), ("5", "5!"), ("4.8", "4.8!")]
    assert positives(pairs(4.2, 5, 4.8), 2) == [("4.2", "4.2!"), ("4.8", "4.8!")]
    assert positives(pairs(0, 1), 9) == positives(pairs(0, 5, 8), 9) == positives(pairs(-1, 5), 9) == []
    one = Sample(["a", "b"], [("c", "d")])
    others = Sample(["a", "c"], [("c", "d")]), Sample(["a", "b"], []), Sample(["a", "b"], [("d", "c")])
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 4
