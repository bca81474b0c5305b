from simcse_jax.evaluation import sts
from simcse_jax.evaluation.tasks import TASKS


def test_every_task_is_read_from_files_and_nothing_else_is():
    assert sorted(TASKS) == sorted([*sts.SUBSETS, *sts.SINGLE_FILES])
    assert set(sts.TITLES) <= set(TASKS) and sts.DEVELOPMENT in TASKS
