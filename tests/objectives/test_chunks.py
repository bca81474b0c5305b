import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.objectives.chunks import in_chunks

pytestmark = [pytest.mark.exact, pytest.mark.optimized]

WEIGHTS = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
ROWS = {"x": jnp.asarray(np.random.default_rng(1).normal(size=(10, 3)).astype(np.float32)), "index": jnp.arange(10)}


def function(weights):
    return lambda rows: jnp.tanh(rows["x"] @ weights) * (1 + rows["index"][:, None])


def test_values_and_gradients_are_those_of_all_rows_at_once_and_only_a_chunk_s_rows_are_computed_at_once():
    shapes = []

    def loss(weights, size):
        def watched(rows):
            shapes.append(rows["x"].shape)
            return function(weights)(rows)

        found = in_chunks(watched, size, ROWS)
        return jnp.sum(jnp.sin(found)), found

    gradients = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    whole, _ = gradients(WEIGHTS, 0)
    for size in (0, 1, 3, 4, 5, 10, 11):
        shapes.clear()
        chunked, found = gradients(WEIGHTS, size)
        np.testing.assert_allclose(found, function(WEIGHTS)(ROWS), atol=1e-6)
        np.testing.assert_allclose(chunked, whole, rtol=1e-5, atol=1e-6)
        if 0 < size < 10:
            assert set(shapes) == {(rows, 3) for rows in (size, 10 % size) if rows}
