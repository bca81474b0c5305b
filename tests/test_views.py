import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.views import dropout_keys


def words(seed, step, index, views=2):
    return np.asarray(jax.random.key_data(dropout_keys(seed, step, jnp.asarray(index), views)))


def test_every_example_step_view_and_seed_has_its_own_key():
    keys = np.concatenate([words(s, t, np.arange(8)).reshape(-1, 2) for s in range(3) for t in range(3)])
    assert len(np.unique(keys, axis=0)) == 3 * 3 * 8 * 2


def test_a_key_depends_on_the_place_in_the_global_batch_alone():
    whole = words(1, 2, np.arange(8))
    np.testing.assert_array_equal(words(1, 2, [6, 7]), whole[:, 6:])
    np.testing.assert_array_equal(words(1, 2, [3, 0]), whole[:, [3, 0]])
    np.testing.assert_array_equal(words(1, 2, np.arange(8), views=3)[:2], whole)


def test_keys_are_threefry_whatever_the_default():
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_impl(dropout_keys(0, 0, jnp.arange(2), 2)) == "threefry2x32"
