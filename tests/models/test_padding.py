import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.models.padding import Padded, unpadded

pytestmark = [pytest.mark.exact, pytest.mark.optimized]
LENGTHS = np.array([3, 5, 1, 4])
MASK = (np.arange(5) < LENGTHS[:, None]).astype(np.int32)
ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5, 2)), jnp.float32)


@pytest.mark.parametrize("over", [0, 3])
def test_tokens_lie_one_after_the_other_and_go_back_to_their_rows(over):
    layout = unpadded(MASK, 13 + over)
    tokens = layout.to_tokens(ROWS)
    np.testing.assert_array_equal(tokens[:13], ROWS[MASK > 0])
    assert tokens.shape == (13 + over, 2) and not tokens[13:].any()
    np.testing.assert_array_equal(layout.to_rows(tokens), ROWS * MASK[..., None])
    np.testing.assert_array_equal(layout.first(tokens), ROWS[:, :1])
    others = layout.with_first(tokens, ROWS[:, 1])
    np.testing.assert_array_equal(layout.to_rows(others), Padded(5).with_first(ROWS, ROWS[:, 1]) * MASK[..., None])
    np.testing.assert_array_equal(layout.first(others)[:, 0], ROWS[:, 1])
    np.testing.assert_array_equal(layout.positions[:13], np.concatenate([np.arange(n) for n in LENGTHS]))
    np.testing.assert_array_equal(layout.of_examples(jnp.arange(4))[:13], np.repeat(np.arange(4), LENGTHS))


def test_gradients_move_back_and_unused_places_have_none():
    layout = unpadded(MASK, 16)
    sent = jnp.asarray(np.random.default_rng(1).normal(size=(16, 2)), jnp.float32)
    (back,) = jax.vjp(layout.to_tokens, ROWS)[1](sent)
    expected = np.zeros((4, 5, 2), np.float32)
    expected[MASK > 0] = sent[:13]
    np.testing.assert_array_equal(back, expected)
    (back,) = jax.vjp(layout.to_rows, sent)[1](ROWS)
    np.testing.assert_array_equal(back, np.concatenate([ROWS[MASK > 0], np.zeros((3, 2))]))
    # The padded layout leaves rows unchanged.
    layout = Padded(5)
    assert layout.to_rows(ROWS) is layout.to_tokens(ROWS) is ROWS
    np.testing.assert_array_equal(layout.first(ROWS), ROWS[:, :1])
    assert layout.positions.shape == (1, 5) and layout.of_examples(jnp.arange(4)).shape == (4, 1)
