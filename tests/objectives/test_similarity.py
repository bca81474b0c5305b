import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine as by_hand
from support.checks import random

from simcse_jax.objectives import similarity
from simcse_jax.objectives.similarity import comparable, cosine, map_rows, normalize, replace_rows


def test_rows_have_length_1_and_their_products_are_similarities():
    first, second = random(2, 4, 3)
    np.testing.assert_allclose(np.linalg.norm(normalize(first), axis=1), 1, rtol=1e-6)
    expected = [by_hand(a, b) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(cosine(first, second), expected, rtol=1e-5)
    one, other = comparable("cosine", first, second)
    np.testing.assert_allclose(jnp.sum(one * other, axis=1), expected, rtol=1e-5)
    np.testing.assert_array_equal(comparable("dot", first)[0], first)
    assert not normalize(np.zeros((1, 3))).any()


@pytest.mark.parametrize("most", [2**22, 7])
def test_rows_are_computed_some_at_a_time_and_of_those_to_replace_no_others(most, monkeypatch):
    monkeypatch.setattr(similarity, "SIMILARITIES", most)  # 2 rows at a time, or all
    seen, computed = [], []
    found = map_rows(lambda rows: seen.append(len(rows)) or 2 * rows, 3, jnp.arange(5.0))
    assert found.tolist() == [0, 2, 4, 6, 8] and max(seen) == (5 if most > 7 else 2)

    def double(rows):
        jax.debug.callback(lambda rows: computed.append(sorted({*rows.tolist()})), rows)
        return 2 * rows

    wanted = jnp.array([False, True, False, True, False, False, True])
    found = jax.jit(lambda rows: replace_rows(rows, wanted, double, 3, rows))(jnp.arange(7.0))
    assert found.tolist() == [0, 2, 2, 6, 4, 5, 12]
    jax.effects_barrier()
    assert computed == ([[0, 1, 2, 3, 4, 5, 6]] if most > 7 else [[1, 3], [0, 6]])
    nothing = replace_rows(jnp.arange(7.0), jnp.zeros(7, bool), double, 3, jnp.arange(7.0))
    assert nothing.tolist() == [*range(7)]
