import numpy as np
import pytest

from simcse_jax.models.relative_positions import BUCKETS, buckets


def test_a_sentence_of_four_tokens_by_hand_and_the_wider_buckets_are_t5_s():
    """A distance n ≥ 8 has bucket 8 + ⌊8 log₁₆(n / 8)⌋, at most 15; in integers, so that no rounding moves an edge."""
    assert buckets(4).tolist() == [[0, 17, 18, 19], [1, 0, 17, 18], [2, 1, 0, 17], [3, 2, 1, 0]]
    assert buckets(1).tolist() == [[0]]
    after = buckets(513)[0]
    for distance in range(1, 513):
        wanted = distance if distance < 8 else max(k for k in range(8, 16) if distance**8 >= 8**8 * 16 ** (k - 8))
        assert after[distance] == 16 + wanted
    np.testing.assert_array_equal(buckets(513)[:, 0][1:], after[1:] - 16)
    assert after.max() + 1 == BUCKETS


@pytest.mark.slow
def test_the_buckets_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    position = torch.arange(512)
    theirs = MPNetEncoder.relative_position_bucket(position[None] - position[:, None])
    np.testing.assert_array_equal(buckets(512), theirs.numpy())
