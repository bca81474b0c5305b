import itertools

import numpy as np

from simcse_jax.data import draws
from simcse_jax.data.draws import ORDER, SUBSET, permutation


def test_a_seed_s_numbers_and_orders_never_change_and_no_two_streams_or_orders_are_alike():
    # Runs that are resumed and recipes that are repeated depend on them.
    streams = draws.epoch_generator(3, 2), draws.row_generator(3, 2, 1), draws.corpus_generator(3, draws.SUBSAMPLE)
    expected = [3546214991206398490, 925803235243424551, 1589196580301227791]
    assert [int(stream.integers(2**62)) for stream in streams] == expected
    assert permutation(10, 42, ORDER, 1)(np.arange(10)).tolist() == [2, 4, 8, 0, 3, 9, 6, 5, 1, 7]
    large = permutation(10**10, 42, SUBSET, 3)(np.arange(4) * 12345).tolist()
    assert large == [7495672883, 6203393193, 3470202963, 8101896898]
    for size in (*range(1, 300), *range(300, 2001, 37), 1024, 1025, 2047):
        found = permutation(size, seed=size, purpose=ORDER, number=size % 7)(np.arange(size))
        assert np.array_equal(np.sort(found), np.arange(size)), size
    for seed in (0, 42):
        streams = [draws.row_generator(seed, row, column) for row, column in itertools.product(range(3), range(3))]
        by_number = (draws.epoch_generator, draws.negative_generator)
        streams += [make(seed, number) for make in by_number for number in range(3)]
        streams += [draws.corpus_generator(seed, purpose) for purpose in (draws.NEXT_SENTENCES, draws.SUBSAMPLE)]
        streams += [np.random.Generator(np.random.Philox(key=[seed, 3]))]  # of a batch
        drawn = np.concatenate([stream.integers(2**63, size=1000) for stream in streams])
        assert len(set(drawn.tolist())) == len(streams) * 1000
    size = 5000
    orders = [permutation(size, seed, ORDER, epoch)(np.arange(size)) for seed in (6, 7, 8) for epoch in range(3)]
    orders.append(permutation(size, 7, SUBSET)(np.arange(size)))
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 12  # one is expected
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.06
