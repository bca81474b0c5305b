import warnings

import pytest

from simcse_jax.evaluation.significance import paired_p


def test_differences_that_vary_have_a_p_however_small_they_are():
    for shift in (0.0, 0.1, -3.3):
        first = [70.1, 71.7, 69.3]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert paired_p([value + shift for value in first], first) is None
    assert paired_p([70.001, 71.002, 69.003], [70.0, 71.0, 69.0]) == pytest.approx(1 - 12**0.5 / 14**0.5, abs=1e-6)
