import itertools

import numpy as np
import pytest

from simcse_jax.data.draws import (
    NEXT_SENTENCES,
    SUBSAMPLE,
    corpus_generator,
    epoch_generator,
    negative_generator,
    row_generator,
)


def test_the_draws_are_not_those_of_the_batches():
    epochs = np.random.Generator(np.random.Philox(key=[3, 0]))
    assert epochs.integers(2**62) != row_generator(3, 0, 0).integers(2**62)


def test_a_seed_s_numbers_never_change():
    """Runs that are resumed and recipes that are repeated depend on them."""
    streams = epoch_generator(3, 2), row_generator(3, 2, 1), corpus_generator(3, SUBSAMPLE)
    assert [int(stream.integers(2**62)) for stream in streams] == [
        3546214991206398490,
        925803235243424551,
        1589196580301227791,
    ]


@pytest.mark.parametrize("seed", [0, 42])
def test_no_two_streams_have_a_number_in_common(seed):
    numbers = itertools.product(range(3), range(3))
    streams = [row_generator(seed, row, column) for row, column in numbers]
    streams += [make(seed, number) for make in (epoch_generator, negative_generator) for number in range(3)]
    streams += [corpus_generator(seed, purpose) for purpose in (NEXT_SENTENCES, SUBSAMPLE)]
    drawn = np.concatenate([stream.integers(2**63, size=1000) for stream in streams])
    assert len(set(drawn.tolist())) == len(streams) * 1000
