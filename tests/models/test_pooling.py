import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.choices import POOLERS
from simcse_jax.models.pooling import FIRST_TOKEN, POOLER_FUNCTIONS, pool


def test_poolers_by_hand_max_of_each_dimension_and_those_of_the_first_token_read_no_other():
    # Two tokens and one of padding; the embedding layer, then two layers.
    layers = jnp.array([[[9.0], [9.0], [9.0]], [[1.0], [3.0], [50.0]], [[5.0], [11.0], [70.0]]])[:, None]
    mask = jnp.array([[1, 1, 0]])
    expected = {"cls": 5.0, "cls_before_pooler": 5.0, "avg": 8.0, "avg_top2": 5.0, "avg_first_last": 5.0}
    expected |= {"avg_static_last": 8.5}
    expected |= {"max": 11.0, "avg_sqrt": 16 / 2**0.5, "avg_weighted": (5 + 2 * 11) / 3, "last": 11.0}
    expected |= {"mask_token": 11.0}  # the second token; the third, of padding, does not count
    is_mask = jnp.array([[False, True, True]])
    found = {pooler: float(pool(tuple(layers), mask, pooler, 0, is_mask)[0, 0]) for pooler in POOLERS}
    assert found == pytest.approx(expected)
    np.testing.assert_allclose(pool(tuple(layers), mask, "avg+cls+last"), [[8, 5, 11]])
    np.testing.assert_allclose(pool(tuple(layers), mask, "avg+mask_token", 0, is_mask), [[8, 11]])
    both = [float(pool(tuple(layers), mask, "mask_token", 0, jnp.full((1, 3), there))[0, 0]) for there in (True, False)]
    assert both == [8.0, 0.0]  # the mean of two; nothing where there is none
    averages = {"avg_top2": 7.0, "avg_first_last": 7.0, "avg_static_last": 10.0}
    # Without a prompt of one token, all poolers have the second one alone; the weighted mean keeps its weight.
    alone = {pooler: float(pool(tuple(layers), mask, pooler, 1, is_mask)[0, 0]) for pooler in POOLERS}
    assert alone == pytest.approx(dict.fromkeys(POOLERS, 11.0) | averages)
    nothing = {pooler: float(pool(tuple(layers), mask, pooler, 2)[0, 0]) for pooler in ("cls", "avg", "last")}
    assert nothing == {"cls": 5.0, "avg": 0.0, "last": 0.0}  # as in sentence-transformers
    three = (*layers, jnp.array([[[0.0], [2.0], [0.0]]]))
    assert float(pool(three, mask, "avg_first_last")[0, 0]) == (2 + 1) / 2
    assert float(pool(three, mask, "avg_static_last")[0, 0]) == (9 + 1) / 2
    assert float(pool(three, mask, "avg_top2")[0, 0]) == (8 + 1) / 2
    with pytest.raises(ValueError, match="min"):
        pool(tuple(layers), mask, "min")
    last = jnp.array([[[1.0, -5.0], [-2.0, -3.0], [9.0, 9.0]], [[4.0, 0.0], [0.0, 7.0], [5.0, -1.0]]])
    mask = jnp.array([[1, 1, 0], [1, 1, 1]])

    def pooled(last):
        return pool([0 * last, 0 * last, last.astype(jnp.bfloat16)], mask, "max")

    assert pooled(last).tolist() == [[1.0, -3.0], [5.0, 7.0]] and pooled(last).dtype == jnp.float32
    gradient = jax.grad(lambda last: jnp.sum(pooled(last) * jnp.array([[1.0, 2.0], [3.0, 4.0]])))(last)
    assert gradient.tolist() == [[[1, 0], [0, 2], [0, 0]], [[0, 0], [0, 4], [3, 0]]]
    assert list(POOLER_FUNCTIONS) == list(POOLERS)
    ones = np.ones((2, 3), np.int32)
    layers = jnp.array(np.random.default_rng(0).normal(size=(3, 2, 3, 4)))
    layers, changed = list(layers), list(layers.at[:, :, 1:].add(1))
    run = jax.jit(lambda each: [pool(each, ones, name, is_mask_token=jnp.ones((2, 3), bool)) for name in POOLERS])
    found = run(layers), run(changed)
    same = [name for name, one, other in zip(POOLERS, *found, strict=True) if np.array_equal(one, other)]
    assert same == list(FIRST_TOKEN)
