import json
import os
import signal
from math import nan

import pytest
from support import assert_arrays, call, lines, train_args

from simcse_jax.runs.loading import load_workdir
from simcse_jax.training import loop, scoring
from simcse_jax.training.patience import ENDED, SINCE_BEST, Patience

SCORES = {0: 9.0, 2: 1.0, 4: 3.0, 6: 2.0, 8: 3.0, 10: 4.0}  # with patience 2 the run ends at 8; the best are 4 and 8
FIELDS = "train.patience=2 train.max_steps=10 train.log_every=3 eval.every=2 analysis.every=6 analysis.sentences=10"
SAID = "ended at step 8: no improvement in 2 evaluations (train.patience)"


def counted(evaluations, *scores):
    patience = Patience(evaluations)
    for step, score in enumerate(scores):
        patience.add(10 * step, score)
    return patience


def test_a_better_score_starts_the_count_again_an_equal_one_does_not_nor_does_the_start():
    patience = counted(2, 90.0, 50.0, 60.0, 60.0)
    assert (patience.best, patience.since_best, patience.is_over) == (60.0, 1, False)
    assert patience.line == {SINCE_BEST: 1} and patience.result == {}
    patience.add(40, 59.0)
    assert patience.is_over and patience.result == {ENDED: 40}
    assert str(patience) == "ended at step 40: no improvement in 2 evaluations (train.patience)"
    assert counted(2, 0.0).line == {} and counted(2, 0.0, 50.0, 49.0, 51.0, 50.0).since_best == 1
    assert counted(2, 0.0, nan, nan).is_over and not counted(2, 0.0, nan, 1.0, nan).is_over  # NaN is not better
    patience = counted(0, 50.0, *[40.0] * 99)  # without patience a run never ends
    assert not patience.is_over and patience.line == patience.result == {}
    written = [{"step": step, "eval/x": score} for step, score in ((0, 9.0), (10, 5.0), (20, 4.0))]
    written.insert(1, {"step": 10, "loss": 99.0})
    assert Patience(1).replay(written) == counted(1, 9.0, 5.0, 4.0)


@pytest.mark.slow
def test_a_run_ends_is_reported_and_done_and_resumed_it_ends_at_the_same_step(tiny_bert, corpus, tmp_path, monkeypatch):
    look, seen, interrupted = loop.Training.look, [], []

    def noted(self, number, *rest):
        seen.append(number)
        look(self, number, *rest)
        if number in interrupted:  # a Ctrl-C after the score of this step
            interrupted.clear()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(scoring, "evaluate_all", lambda embed, evaluators: {"eval/dev": SCORES[seen[-1]]})
    monkeypatch.setattr(loop.Training, "look", noted)

    def train(workdir, code=0):
        args = train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir)
        done = call("train", *args, *(f"--config.{field}" for field in FIELDS.split()))
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    workdir, parts = tmp_path / "straight", tmp_path / "parts"
    said, written = train(workdir), lines(workdir)
    assert [line["step"] for line in written if "loss" in line] == [1, 3, 6, 8]  # the end, too
    assert [line["step"] for line in written if "analysis" in line] == [0, 6, 8]
    since = {line["step"]: line.get(SINCE_BEST) for line in written if "eval/dev" in line}
    assert since == {0: None, 2: 0, 4: 0, 6: 1, 8: 2}
    result = (workdir / "result.json").read_text()
    assert SAID in said and json.loads(result)[ENDED] == 8
    assert "best checkpoint: step 8" in said  # of equal scores the last one
    again = train(workdir)
    assert SAID in again and "compiled the step" not in again and lines(workdir) == written
    interrupted.append(4)
    assert "saved at step 5" in train(parts, code=130)
    resumed = train(parts)
    assert "resuming at step 5 of 10" in resumed and SAID in resumed
    assert (parts / "result.json").read_text() == result
    assert [line["step"] for line in lines(parts)] == [line["step"] for line in written]
    found, expected = (load_workdir(folder, step=8).params for folder in (parts, workdir))
    assert_arrays(found, expected)
