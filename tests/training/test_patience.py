import json
import os
import signal
from math import nan

import pytest
from support import call, lines, refused, train_args

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
    assert str(patience) == ("ended at step 40: no improvement in 2 evaluations (train.patience)")
    assert counted(2, 0.0).line == {}


def test_a_better_score_starts_the_count_again_and_one_that_is_no_number_is_not_better():
    assert counted(2, 0.0, 50.0, 49.0, 51.0, 50.0).since_best == 1
    assert counted(2, 0.0, nan, nan).is_over and not counted(2, 0.0, nan, 1.0, nan).is_over


def test_without_patience_a_run_never_ends_and_its_lines_are_as_before():
    patience = counted(0, 50.0, *[40.0] * 99)
    assert not patience.is_over and patience.line == patience.result == {}


def test_the_lines_of_the_metrics_give_the_same_count():
    written = [{"step": step, "eval/x": score} for step, score in ((0, 9.0), (10, 5.0), (20, 4.0))]
    written.insert(1, {"step": 10, "loss": 99.0})
    assert Patience(1).replay(written) == counted(1, 9.0, 5.0, 4.0)


SCORES = {0: 9.0, 2: 1.0, 4: 3.0, 6: 2.0, 8: 3.0, 10: 4.0}  # with patience 2 the run ends at 8; the best are 4 and 8


@pytest.fixture
def train(tiny_bert, corpus, monkeypatch):
    """Trains for ten steps with these scores, or until a Ctrl-C after the score of a step."""
    look = loop.Training.look

    def run(workdir, *fields, ctrl_c=None):
        seen = []

        def noted(self, number, *rest):
            seen.append(number)
            look(self, number, *rest)
            if number == ctrl_c:
                os.kill(os.getpid(), signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr(scoring, "evaluate_all", lambda embed, evaluators: {"eval/dev": SCORES[seen[-1]]})
            patch.setattr(loop.Training, "look", noted)
            given = ("train.patience=2", "train.max_steps=10", "train.log_every=3", "eval.every=2", *fields)
            args = train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir)
            return call("train", *args, *(f"--config.{field}" for field in given))

    return run


def parameters(workdir, step):
    model = load_workdir(workdir, step=step)
    return {name: value.tobytes() for name, value in model.params.items()}


@pytest.mark.slow
def test_a_run_ends_is_reported_and_is_done_and_a_resumed_one_ends_as_well(train, tmp_path):
    said = "ended at step 8: no improvement in 2 evaluations (train.patience)"
    analysis = ("analysis.every=6", "analysis.sentences=10")
    done = train(tmp_path / "straight", *analysis)
    assert done.returncode == 0 and said in done.stdout, done.stderr
    written = lines(tmp_path / "straight")
    assert [line["step"] for line in written if "loss" in line] == [1, 3, 6, 8]  # the end, too
    assert [line["step"] for line in written if "analysis" in line] == [0, 6, 8]
    since = {line["step"]: line.get(SINCE_BEST) for line in written if "eval/dev" in line}
    assert since == {0: None, 2: 0, 4: 0, 6: 1, 8: 2}
    result = json.loads((tmp_path / "straight" / "result.json").read_text())
    assert result[ENDED] == 8 and "best checkpoint: step 8" in done.stdout  # of equal scores the last one

    again = train(tmp_path / "straight", *analysis)
    assert again.returncode == 0 and said in again.stdout and "compiled the step" not in again.stdout, again.stderr
    assert lines(tmp_path / "straight") == written

    stopped = train(tmp_path / "resumed", *analysis, ctrl_c=4)
    assert stopped.returncode == 130 and "saved at step 5" in stopped.stderr, stopped.stderr
    done = train(tmp_path / "resumed", *analysis)
    assert done.returncode == 0 and "resuming at step 5 of 10" in done.stdout and said in done.stdout, done.stderr
    assert json.loads((tmp_path / "resumed" / "result.json").read_text()) == result
    assert parameters(tmp_path / "resumed", 8) == parameters(tmp_path / "straight", 8)
    assert [line["step"] for line in lines(tmp_path / "resumed")] == [line["step"] for line in written]
    refused(train(tmp_path / "straight", "train.patience=3"), "train.patience was 2, is 3")


def test_patience_without_scores_is_refused(tiny_bert, corpus, tmp_path):
    done = call("train", *train_args(tiny_bert, corpus["txt"], "", tmp_path / "run"), "--config.train.patience=2")
    refused(done, "config.train.patience=2: eval.data is empty, so there are no scores")
