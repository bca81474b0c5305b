from support.listed import write_run, write_runs

from simcse_jax.runs.listing import differing_fields, find_runs, rows, summarize_run


def test_runs_are_found_at_any_depth_and_read_with_scores_before_and_after_training_in_columns_of_their_own(tmp_path):
    folder = write_runs(tmp_path)
    found = find_runs([folder])
    assert [path.name for path in found] == ["a", "c", "b"]
    a, c, b = map(summarize_run, found)
    assert (a.steps, a.planned, a.best, a.scores, a.average, a.is_done) == (10, 10, 8, {"stsb_dev": 71.5}, 60.25, True)
    assert (b.steps, b.planned, b.best, b.average, b.is_done) == (4, 10, 4, None, False)
    assert (c.steps, c.planned, c.best, c.scores, c.is_done) == (3, 3, None, {}, True)
    fields = differing_fields([a, c, b])
    assert set(fields) == {"train.learning_rate", "train.max_steps", "eval.tasks"}  # not how often is logged
    assert fields["train.learning_rate"] == [1e-5, 3e-5, 3e-5]
    assert [row[0] for row in rows([a], folder / "more")][1] == str(folder / "a")
    against = {"before": 60.0, "after": 64.25, "low": 1.0, "high": 7.0, "step": 10}
    write_run(tmp_path / "tuned", {10: 71.0}, {"average": 60.25, "best_step": 10, "against_start": against})
    write_run(tmp_path / "other", {10: 71.0})
    header, tuned, other = rows([summarize_run(tmp_path / name) for name in ("tuned", "other")], tmp_path)
    at = header.index("before")
    assert header[at : at + 2] == ["before", "after"]
    assert (tuned[at : at + 2], other[at : at + 2]) == (["60.00", "64.25"], ["", ""])
