import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.training.schedule import Due, Schedule, make_schedule


def steps(schedule: Schedule, what: str) -> list[int]:
    return [step for step in range(schedule.total + 1) if getattr(schedule.due(step), what)]


def test_the_work_that_is_due_at_each_step():
    schedule = Schedule(total=10, log_every=4, score_every=3, measure_every=5, keep_every=4)
    assert steps(schedule, "log") == [1, 4, 8, 10]  # the first, every fourth, the last
    assert steps(schedule, "score") == [0, 3, 6, 9, 10]
    assert steps(schedule, "measure") == [0, 5, 10]
    assert steps(schedule, "save") == [3, 4, 6, 8, 9, 10]  # the start is scored and not saved
    assert steps(schedule, "pause") == [0, 3, 4, 5, 6, 8, 9, 10]


def test_an_interval_of_0_is_never_due():
    schedule = Schedule(total=6, log_every=100, score_every=100, measure_every=0, keep_every=0)
    assert [steps(schedule, what) for what in Due._fields] == [[1, 6], [], [0, 6], [6]]


def test_a_run_without_steps_scores_and_saves_its_start():
    ends = Schedule(total=6, log_every=100, score_every=0, measure_every=0, keep_every=0, keep_start=True)
    assert [step for step in range(7) if ends.due(step).score] == [0, 6] == [n for n in range(7) if ends.due(n).save]
    assert Schedule(0, 1, 1, 1, 0).due(0) == Due(log=False, measure=True, score=True, save=True)


@pytest.mark.parametrize(
    ("field", "what", "due"), [("train.log_every", "log", [1, 2, 4]), ("eval.every", "score", [0, 2, 4])]
)
def test_the_fields_of_a_config_that_it_is_made_of(field, what, due):
    config = default_config()
    config.update_from_flattened_dict({field: 2})
    assert steps(make_schedule(config, 4), what) == due
