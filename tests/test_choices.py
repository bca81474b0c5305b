import jax.numpy as jnp
import pytest

from simcse_jax.choices import (
    AGGREGATIONS,
    AUGMENTATIONS,
    DTYPES,
    GRIDS,
    METRICS,
    POOLERS,
    POSITIVES,
    PROTOCOLS,
    TASKS,
    TRANSFER,
)
from simcse_jax.data.augment import CHANGES
from simcse_jax.data.documents import REACH
from simcse_jax.evaluation import sts, transfer, transfer_files
from simcse_jax.models.config import ACTIVATIONS
from simcse_jax.models.nonlinearities import ACTIVATION_FUNCTIONS
from simcse_jax.models.pooling import pool


def test_names_are_those_of_the_code_and_none_stands_for_two_tasks():
    assert tuple(sts.SUBSETS | sts.SINGLE_FILES) == TASKS
    assert set(transfer_files.CLASS_FILES | transfer_files.SPLIT_FILES) == set(TRANSFER)
    assert GRIDS.keys() == PROTOCOLS.keys()
    assert (sts.METRICS, sts.AGGREGATIONS, transfer.GRIDS, TRANSFER) == (METRICS, AGGREGATIONS, GRIDS, TRANSFER)
    assert not set(TASKS) & set(TRANSFER)
    assert not {"sts", "transfer"} & {*TASKS, *TRANSFER}
    assert (*CHANGES, "mlm") == AUGMENTATIONS and {*REACH} < {*POSITIVES}
    assert set(ACTIVATIONS) == set(ACTIVATION_FUNCTIONS)
    states, mask = list(jnp.ones((3, 1, 2, 4))), jnp.ones((1, 2), int)
    pooled = (pool(states, mask, pooler, is_mask_token=mask > 0) for pooler in POOLERS)
    assert all(each.shape == (1, 4) for each in pooled)
    assert all(jnp.dtype(dtype) for dtype in DTYPES)
    with pytest.raises(ValueError):
        pool(states, mask, "min")
