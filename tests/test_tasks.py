from simcse_jax.evaluation import postprocess, sts, transfer, transfer_files
from simcse_jax.tasks import AGGREGATIONS, GRIDS, METRICS, POSTPROCESSING, PROTOCOLS, TASKS, TRANSFER


def test_names_are_those_of_the_code_and_none_stands_for_two_tasks():
    assert tuple(sts.SUBSETS | sts.SINGLE_FILES) == TASKS
    assert set(transfer_files.CLASS_FILES | transfer_files.SPLIT_FILES) == set(TRANSFER)
    assert set(postprocess.METHODS) == set(POSTPROCESSING)
    assert GRIDS.keys() == PROTOCOLS.keys()
    assert (sts.METRICS, sts.AGGREGATIONS, transfer.GRIDS, TRANSFER) == (METRICS, AGGREGATIONS, GRIDS, TRANSFER)
    assert not set(TASKS) & set(TRANSFER)
    assert not {"sts", "transfer"} & {*TASKS, *TRANSFER}
