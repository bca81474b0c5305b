import json
import os
import signal
from math import nan

import numpy as np
import pytest
from support import call, lines, train_args

from simcse_jax.runs.loading import load_workdir
from simcse_jax.training import loop, scoring
from simcse_jax.training.patience import ENDED, SINCE_BEST, Patience


def counted(evaluations, *scores):
    patience = Patience(evaluations)
    for step, score in enumerate(scores):
        patience.add(10 * step, score)
    return patience


def test_the_start_does_not_count_and_an_equal_score_is_not_better():
    patience = counted(2, 90.0, 50.0, 60.0, 60.0)
    assert (patience.best, patience.since_best, patience.is_over) == (60.0, 1, False)
    assert patience.line == {SINCE_BEST: 1} and patience.result == {}
    patience.add(40, 59.0)
    assert patience.is_over and patience.result == {ENDED: 40}
    assert str(patience) == "ended at step 40: no improvement in 2 evaluations (train.patience)"
    assert counted(2, 0.0).line == {}


def test_a_better_score_starts_the_count_again_and_without_patience_a_run_never_ends():
    assert counted(2, 0.0, 50.0, 49.0, 51.0, 50.0).since_best == 1
    assert counted(2, 0.0, nan, nan).is_over and not counted(2, 0.0, nan, 1.0, nan).is_over  # NaN is not better
    patience = counted(0, 50.0, *[40.0] * 99)
    assert not patience.is_over and patience.line == patience.result == {}


def test_the_lines_of_the_metrics_give_the_same_count():
    written = [{"step": step, "eval/x": score} for step, score in ((0, 9.0), (10, 5.0), (20, 4.0))]
    written.insert(1, {"step": 10, "loss": 99.0})
    assert Patience(1).replay(written) == counted(1, 9.0, 5.0, 4.0)


SCORES = {0: 9.0, 2: 1.0, 4: 3.0, 6: 2.0, 8: 3.0, 10: 4.0}  # with patience 2 the run ends at 8; the best are 4 and 8


@pytest.fixture(scope="module")
def train(tiny_bert, corpus):
    """Trains for ten steps with these scores, or until a Ctrl-C after the score of a step."""
    look = loop.Training.look

    def run(workdir, ctrl_c=None):
        seen = []

        def noted(self, number, *rest):
            seen.append(number)
            look(self, number, *rest)
            if number == ctrl_c:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scoring, "evaluate_all", lambda embed, evaluators: {"eval/dev": SCORES[seen[-1]]})
            patch.setattr(loop.Training, "look", noted)
            fields = ("train.patience=2", "train.max_steps=10", "train.log_every=3", "eval.every=2")
            fields += ("analysis.every=6", "analysis.sentences=10")
            args = train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir)
            return call("train", *args, *(f"--config.{field}" for field in fields))

    return run


@pytest.fixture(scope="module")
def straight(train, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("patience") / "straight"
    done = train(workdir)
    assert done.returncode == 0, done.stderr
    return workdir, done.stdout


SAID = "ended at step 8: no improvement in 2 evaluations (train.patience)"


@pytest.mark.slow
def test_a_run_ends_is_reported_and_is_done(straight, train):
    workdir, said = straight
    written = lines(workdir)
    assert [line["step"] for line in written if "loss" in line] == [1, 3, 6, 8]  # the end, too
    assert [line["step"] for line in written if "analysis" in line] == [0, 6, 8]
    since = {line["step"]: line.get(SINCE_BEST) for line in written if "eval/dev" in line}
    assert since == {0: None, 2: 0, 4: 0, 6: 1, 8: 2}
    result = json.loads((workdir / "result.json").read_text())
    assert SAID in said and result[ENDED] == 8 and "best checkpoint: step 8" in said  # of equal scores the last one
    again = train(workdir)
    assert again.returncode == 0 and SAID in again.stdout and "compiled the step" not in again.stdout, again.stderr
    assert lines(workdir) == written


@pytest.mark.slow
def test_a_resumed_run_ends_where_it_would_have_ended(straight, train, tmp_path):
    stopped = train(tmp_path, ctrl_c=4)
    assert stopped.returncode == 130 and "saved at step 5" in stopped.stderr, stopped.stderr
    done = train(tmp_path)
    assert done.returncode == 0 and "resuming at step 5 of 10" in done.stdout and SAID in done.stdout, done.stderr
    workdir, _ = straight
    assert (tmp_path / "result.json").read_text() == (workdir / "result.json").read_text()
    assert [line["step"] for line in lines(tmp_path)] == [line["step"] for line in lines(workdir)]
    found, expected = (load_workdir(folder, step=8).params for folder in (tmp_path, workdir))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
