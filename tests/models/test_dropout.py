import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from support import row_keys

from simcse_jax.models.dropout import attention_masks, drop, threefry2x32, token_masks

pytestmark = pytest.mark.exact


@functools.partial(jax.jit, static_argnums=1)
def dropout(keys, sites, x, rate):
    """Dropout of (B, T, D) hidden states or (B, H, Q, K) attention probabilities, one for each site."""
    if x.ndim == 4:
        masks = attention_masks(keys, sites, x.shape[1:], rate)
    else:
        masks = token_masks(keys[:, None], jnp.arange(x.shape[1])[None], sites, x.shape[-1], rate)
    return [drop(x, mask) for mask in masks]


def mask(keys, site, shape, rate):
    return np.asarray(dropout(keys, (site,), jnp.ones(shape), rate)[0]) > 0


def test_drops_with_the_rate_keeps_the_mean_and_threefry_is_the_library_s():
    for rate, shape in ((0.0, (64, 6, 16, 16)), (0.1, (64, 16, 30)), (0.5, (64, 6, 16, 16))):
        out = np.asarray(dropout(row_keys(64), (3,), jnp.ones(shape), rate)[0])
        assert np.mean(out == 0) == pytest.approx(rate, abs=4 * np.sqrt(0.25 / out.size))
        assert set(np.unique(out)) <= {0.0, np.float32(1 / (1 - round(rate * 65536) / 65536))}
    key, counter = jnp.uint32([7, 11]), jnp.arange(64, dtype=jnp.uint32)
    expected = threefry_2x32(key, counter)  # its two halves are the two words
    np.testing.assert_array_equal(jnp.concatenate(threefry2x32((key[0], key[1]), counter[:32], counter[32:])), expected)


def test_a_mask_depends_on_keys_of_rows_which_must_fit_and_positions_alone_and_the_rate_may_be_traced():
    keys = row_keys(4)
    for long_shape, short_shape in (((24, 10), (16, 10)), ((6, 24, 24), (6, 16, 16))):
        long, short = (mask(keys, 1, (4, *shape), 0.5) for shape in (long_shape, short_shape))
        np.testing.assert_array_equal(long[:, :16] if long.ndim == 3 else long[:, :, :16, :16], short)
    np.testing.assert_array_equal(short[2:3], mask(keys[2:3], 1, (1, 6, 16, 16), 0.5))
    whole = mask(keys, 1, (4, 16, 10), 0.5)
    np.testing.assert_array_equal(whole[::-1], mask(keys[::-1], 1, (4, 16, 10), 0.5))
    rows, positions = jnp.array([2, 0, 2, 1]), jnp.array([5, 0, 1, 7])
    (flat,) = jax.jit(lambda *given: token_masks(*given, [1], 10, 0.5))(keys[rows], positions)
    np.testing.assert_array_equal(flat.keep, whole[rows, positions])
    x = jnp.ones((2, 4, 8))
    assert drop(x, None) is x
    by_constant = jax.jit(lambda keys: dropout(keys, (0,), x, 0.3)[0])
    np.testing.assert_array_equal(dropout(row_keys(2), (0,), x, 0.3)[0], by_constant(row_keys(2)))
    for keys in (row_keys(3), row_keys(1), jax.random.split(jax.random.key(0, impl="rbg"), 2)):
        with pytest.raises(ValueError, match="one threefry key per row"):
            dropout(keys, (0,), x, 0.1)


def most_alike(vectors):
    return np.abs(np.corrcoef(vectors) - np.eye(len(vectors))).max() * np.sqrt(vectors.shape[1])


@pytest.mark.parametrize("shape", [(2, 512, 32), (2, 12, 64, 32)])
def test_no_two_rows_sites_or_places_share_a_mask(shape):
    masks = np.stack(dropout(row_keys(2), (0, 1, 2), jnp.ones(shape), 0.5)) > 0
    assert most_alike(masks.reshape(6, -1)) < 5  # every site of every row
    for axis in range(len(shape) - 1):  # heads, positions, channels
        assert most_alike(np.moveaxis(masks[0, 0], axis, 0).reshape(shape[axis + 1], -1)) < 6


@pytest.mark.platforms
@pytest.mark.parametrize("shape", [(2, 5, 30), (2, 6, 5, 7)])
def test_masks_are_the_same_however_they_are_drawn(shape, monkeypatch):
    def draw(keys):
        if len(shape) == 4:
            return [mask.keep for mask in attention_masks(keys, [1, 4], shape[1:], 0.5)]
        return [mask.keep for mask in token_masks(keys[:, None], jnp.arange(5)[None], [0, 2, 3], 30, 0.5)]

    def has(platform, operation):
        return operation in jax.jit(draw).trace(row_keys(2)).lower(lowering_platforms=(platform,)).as_text()

    assert [has(platform, "stablehlo.while") for platform in ("cpu", "tpu", "cuda")] == [True, False, False]
    assert [has(platform, "optimization_barrier") for platform in ("cpu", "tpu", "cuda")] == [False, False, True]
    in_a_loop = jax.jit(draw)(row_keys(2))
    for way in ("tpu", "default"):
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, way=way, **ways: ways[way](*args))
        for one, other in zip(in_a_loop, jax.jit(lambda keys: draw(keys))(row_keys(2)), strict=True):
            assert one.shape == shape and 0.3 < one.mean() < 0.7
            np.testing.assert_array_equal(one, other)
