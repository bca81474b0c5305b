import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.devices.chunks import in_chunks

pytestmark = [pytest.mark.exact, pytest.mark.optimized]

WEIGHTS = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
ROWS = {"x": jnp.asarray(np.random.default_rng(1).normal(size=(10, 3)).astype(np.float32)), "index": jnp.arange(10)}


def function(weights):
    return lambda rows: jnp.tanh(rows["x"] @ weights) * (1 + rows["index"][:, None])


@pytest.mark.parametrize("size", [0, 1, 3, 5, 10, 11])
def test_values_and_gradients_are_those_of_all_rows_at_once(size):
    def loss(weights, size):
        found = in_chunks(function(weights), size, ROWS)
        return jnp.sum(jnp.sin(found)), found

    (chunked, found), (whole, _) = (
        jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)(WEIGHTS, n) for n in (size, 0)
    )
    np.testing.assert_allclose(found, function(WEIGHTS)(ROWS), atol=1e-6)
    np.testing.assert_allclose(chunked, whole, rtol=1e-5, atol=1e-6)


def test_a_chunk_s_rows_are_all_that_is_computed_at_once():
    shapes = []

    def watched(rows):
        shapes.append(rows["x"].shape)
        return rows["x"]

    in_chunks(watched, 4, ROWS)
    assert set(shapes) == {(4, 3), (2, 3)}
