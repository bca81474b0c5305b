import numpy as np
import pytest

from simcse_jax.training.costs.groups import axes_of, first_group

PLACES = list(np.ndindex(2, 4, 1))  # of eight chips


@pytest.mark.parametrize(
    ("groups", "group", "axes"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", (0, 1, 2, 3), (1,)),
        ("{{0,4},{1,5},{2,6},{3,7}}", (0, 4), (0,)),
        ("{{0,1,4,5},{2,3,6,7}}", (0, 1, 4, 5), (0, 1)),
        ("[2,4]<=[8]", (0, 1, 2, 3), (1,)),
        ("[4,2]<=[2,4]T(1,0)", (0, 4), (0,)),
        ("[1,8]<=[8]", tuple(range(8)), (0, 1)),
        ("mesh['a'=2,'b'=4] {'b'}", (0, 1, 2, 3), (1,)),
        ("mesh['a'=2,'b'=4] {'a'}", (0, 4), (0,)),
        ("mesh['a'=2,'b'=4] {'a','b'}", tuple(range(8)), (0, 1)),
        ("{}", tuple(range(8)), (0, 1)),
    ],
)
def test_a_collective_s_first_group_and_the_axes_along_which_it_is(groups, group, axes):
    assert first_group(f", replica_groups={groups}, dimensions={{0}}", 8) == group
    assert axes_of(group, PLACES) == axes
    assert axes_of(group, ()) == axes_of(group, [()] * 8) == ()  # of devices that are no TPUs
