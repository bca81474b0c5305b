import itertools

import numpy as np
import pytest
from scipy import stats

from simcse_jax.data.draws import (
    NEXT_SENTENCES,
    ORDER,
    SUBSAMPLE,
    SUBSET,
    corpus_generator,
    epoch_generator,
    negative_generator,
    permutation,
    row_generator,
)


def test_a_seed_s_numbers_and_orders_never_change():
    """Runs that are resumed and recipes that are repeated depend on them."""
    streams = epoch_generator(3, 2), row_generator(3, 2, 1), corpus_generator(3, SUBSAMPLE)
    expected = [3546214991206398490, 925803235243424551, 1589196580301227791]
    assert [int(stream.integers(2**62)) for stream in streams] == expected
    assert permutation(10, 42, ORDER, 1)(np.arange(10)).tolist() == [2, 4, 8, 0, 3, 9, 6, 5, 1, 7]


@pytest.mark.parametrize("seed", [0, 42])
def test_no_two_streams_have_a_number_in_common(seed):
    streams = [row_generator(seed, row, column) for row, column in itertools.product(range(3), range(3))]
    streams += [make(seed, number) for make in (epoch_generator, negative_generator) for number in range(3)]
    streams += [corpus_generator(seed, purpose) for purpose in (NEXT_SENTENCES, SUBSAMPLE)]
    streams += [np.random.Generator(np.random.Philox(key=[seed, 3]))]  # of a batch
    drawn = np.concatenate([stream.integers(2**63, size=1000) for stream in streams])
    assert len(set(drawn.tolist())) == len(streams) * 1000


def test_it_is_a_permutation_of_every_size():
    for size in (*range(1, 300), *range(300, 2001, 37), 1024, 1025, 2047):
        found = permutation(size, seed=size, purpose=ORDER, number=size % 7)(np.arange(size))
        assert np.array_equal(np.sort(found), np.arange(size)), size


@pytest.mark.parametrize("size", [10**10, 2**33, 2**33 + 1])
def test_large_ranges_are_kept_without_a_row_twice(size):
    positions = np.concatenate([np.arange(50_000), size - 1 - np.arange(50_000)])
    found = permutation(size, 7, ORDER)(positions)
    assert found.min() >= 0 and found.max() < size and len(np.unique(found)) == len(positions)
    assert stats.chisquare(np.bincount(found * 64 // size, minlength=64)).pvalue > 1e-4


def p_values(draw, size: int, count: int) -> list[float]:
    """The chi-square p-values of positions, of neighbours and of their steps in `count` permutations of `size`."""
    orders = np.stack([draw(number) for number in range(count)])
    positions = np.stack([np.bincount(column, minlength=size) for column in orders.T])
    pairs = np.zeros((size, size), np.int64)
    np.add.at(pairs, (orders[:, :-1].ravel(), orders[:, 1:].ravel()), 1)
    steps = np.bincount(np.diff(orders, axis=1).ravel() % size, minlength=size)[1:]
    off = ~np.eye(size, dtype=bool)
    return [stats.chisquare(each).pvalue for each in (positions.ravel(), pairs[off], steps)]


@pytest.mark.parametrize("size", [5, 30])
def test_positions_and_neighbours_are_as_random_as_numpy_s(size):
    by_epoch = p_values(lambda epoch: permutation(size, 3, ORDER, epoch)(np.arange(size)), size, 2000)
    by_seed = p_values(lambda seed: permutation(size, seed, ORDER)(np.arange(size)), size, 2000)
    assert min(by_epoch + by_seed) > 1e-4, (by_epoch, by_seed)


def test_epochs_seeds_and_purposes_are_unrelated():
    size = 5000
    orders = [permutation(size, seed, ORDER, epoch)(np.arange(size)) for seed in (6, 7, 8) for epoch in range(3)]
    orders.append(permutation(size, 7, SUBSET)(np.arange(size)))
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 12  # one is expected
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.06
