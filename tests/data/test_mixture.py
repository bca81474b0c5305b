import numpy as np

from simcse_jax.data.mixture import Mixture, share_out


def test_sources_have_turns_by_weight_and_rows_are_read_once_before_any_is_read_again():
    assert share_out(10, (3.0, 1.0)) == (8, 2)  # 7.5 and 2.5: the first of equal fractions gets the turn
    assert share_out(7, (1.0, 1.0, 1.0)) == (3, 2, 2)
    assert share_out(5, (1e-30, 1e30)) == (0, 5)
    assert all(sum(share_out(total, (0.2, 0.5, 0.3))) == total for total in range(1, 40))
    mixture, before = Mixture((6, 3)), [0, 0]
    orders = []
    for epoch in range(4):
        source, number = mixture.turns(7, epoch, np.arange(9))
        assert np.bincount(source).tolist() == [6, 3]
        for of in (0, 1):
            count = mixture.counts[of]
            assert sorted(number[source == of]) == list(range(before[of], before[of] + count))
            before[of] += count
        orders.append(source.tolist())
    assert len({tuple(order) for order in orders}) > 1
    assert mixture.turns(7, 3, np.array([4]))[0] == orders[3][4]  # of one place alone
    assert any(mixture.turns(8, epoch, np.arange(9))[0].tolist() != orders[epoch] for epoch in range(4))
    mixture, sizes = Mixture((6, 3)), (4, 100)
    seen = [mixture.rows(sizes, 1, epoch, np.arange(9)) for epoch in range(4)]
    first, other = (np.concatenate([rows[(rows < 4) == own] for rows in seen]) for own in (True, False))
    assert np.bincount(first).tolist() == [6, 6, 6, 6]  # 24 turns for 4 rows
    assert len(set(other)) == 12 and other.min() >= 4 and other.max() < 104
    assert mixture.rows(sizes, 1, 2, np.array([5, 1])).tolist() == [seen[2][5], seen[2][1]]
    # The same for ever: runs resume in the order that they began with.
    assert Mixture((5, 3)).rows((4, 3), 42, 1, np.arange(6)).tolist() == [2, 4, 2, 0, 5, 0]
