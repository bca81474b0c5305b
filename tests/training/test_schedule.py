from simcse_jax.training.schedule import Due, Schedule


def steps(schedule: Schedule, what: str) -> list[int]:
    return [step for step in range(schedule.total + 1) if getattr(schedule.due(step), what)]


def test_the_work_that_is_due_at_each_step():
    schedule = Schedule(total=10, log_every=4, score_every=3, measure_every=5, keep_every=4)
    assert steps(schedule, "log") == [1, 4, 8, 10]  # the first, every fourth, the last
    assert steps(schedule, "score") == [0, 3, 6, 9, 10] and steps(schedule, "measure") == [0, 5, 10]
    assert steps(schedule, "save") == [3, 4, 6, 8, 9, 10]  # the start is scored and not saved
    assert steps(schedule, "pause") == [0, 3, 4, 5, 6, 8, 9, 10]
    never = Schedule(total=6, log_every=100, score_every=100, measure_every=0, keep_every=0)
    assert [steps(never, what) for what in Due._fields] == [[1, 6], [], [0, 6], [6]]
    ends = Schedule(total=6, log_every=100, score_every=0, measure_every=0, keep_every=0, keep_start=True)
    assert steps(ends, "score") == [0, 6] == steps(ends, "save")
    assert Schedule(0, 1, 1, 1, 0).due(0) == Due(log=False, measure=True, score=True, save=True)
