from unittest.mock import Mock

import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.errors import UserError
from simcse_jax.host.locks import held
from simcse_jax.host.storage import as_path
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters.tensorboard import TensorBoard
from simcse_jax.runs.reporters.tracker import Tracker

ALL = [(1, "train/loss", 0.5), (2, "train/loss", 1.0), (2, "eval/dev", 50.0), (3, "train/loss", 1.5)]


class Fake:
    """A tracker in memory: all of its runs, each a list of (step, name, value)."""

    def __init__(self, keeps=True):
        self.runs, self.keeps, self.first_step, self.is_new = {}, keeps, 0, False
        self.results, self.closed, self.down = {}, [], False

    def open(self, known):
        self.is_new = known not in self.runs
        self.id = f"run{len(self.runs)}" if self.is_new else known
        self.runs.setdefault(self.id, [])
        return self

    def send(self, rows):
        if self.down:
            raise ConnectionError("no route\nto host")
        self.runs[self.id] += [(row.step, name, value) for row in rows for name, value in row.values.items()]

    def summarize(self, step, result):
        self.results[self.id] = (step, dict(result))

    def close(self, ended):
        self.closed.append(ended)


@pytest.fixture
def fake():
    return Fake()


def start(folder, fake, step=None):
    metrics = Metrics(folder, step)
    tracker = Tracker("wandb", folder, fake.open)
    metrics.add(tracker)
    tracker.replay(metrics.lines)
    return metrics


def write(metrics, steps):
    for step in steps:
        metrics.write(step, {"loss": step / 2})
        if step == 2:
            metrics.write(step, {"eval/dev": 50.0})
    metrics.flush()


def test_a_resumed_run_is_the_same_one_and_has_each_number_once(tmp_path, fake):
    write(start(tmp_path, fake), [1, 2])  # and is killed
    metrics = start(tmp_path, fake, 1)
    write(metrics, [2, 3])
    metrics.finish({"best_step": 2, "dev": {"spearman": 50.0}})
    metrics.close()
    assert fake.runs == {"run0": ALL}
    assert fake.results == {"run0": (2, {"result/best_step": 2, "result/dev/spearman": 50.0})} and fake.closed == [True]
    fake.results = {}
    metrics = start(tmp_path, fake, 3)  # the same command, after the end
    metrics.finish({"best_step": 2, "dev": {"spearman": 50.0, "pearson": 40.0}})
    metrics.close()
    assert fake.runs == {"run0": ALL} and fake.results == {"run0": (2, {"result/dev/pearson": 40.0})}


def test_a_tracker_that_is_chosen_later_or_does_not_know_the_run_gets_all_lines(tmp_path, fake):
    metrics = Metrics(tmp_path, None)
    write(metrics, [1, 2])
    metrics.close()
    metrics = start(tmp_path, fake, 2)
    write(metrics, [3])
    metrics.close()
    assert fake.runs == {"run0": ALL} and fake.closed == [False]
    another = Fake()
    start(tmp_path, another, 3).close()
    assert another.runs == {"run0": ALL}


@NEEDS_GCSFS
def test_a_job_that_lost_its_run_changes_neither_its_metrics_nor_its_trackers(store, fake, monkeypatch):
    monkeypatch.setattr("simcse_jax.runs.metrics_file.WRITE_SECONDS", 0)
    folder = as_path("gs://bucket/run")
    with held(folder):
        metrics = start(folder, fake)
        metrics.add(TensorBoard(folder, None))
        write(metrics, [1, 2])
        store.put("run/metrics.jsonl", b"another job's")
        store.delete("run/.lock")  # which has ended
        before, sent = dict(store.objects), [*fake.runs["run0"]]
        metrics.write(3, {"loss": 1.5})  # a log line: the next checkpoint reports it
        for end in (metrics.flush, metrics.close):
            with pytest.raises(UserError, match="gs://bucket/run: another job has taken over"):
                end()
    assert store.objects == before and fake.runs == {"run0": sent} and not fake.closed


def test_what_a_tracker_may_lose_in_a_kill_is_sent_again(tmp_path):
    fake = Fake(keeps=False)
    write(start(tmp_path, fake), [1, 2])  # and is killed
    fake.runs = {"run0": []}
    stopped = start(tmp_path, fake, 2)
    write(stopped, [3])
    stopped.close()
    start(tmp_path, fake, 3).close()
    assert fake.runs == {"run0": ALL}
    fake.first_step = 4  # what it has itself is not sent either
    (tmp_path / "wandb.json").write_text('{"id": "run0", "last": {}}')
    write(start(tmp_path, fake, 3), [4])
    assert fake.runs == {"run0": [*ALL, (4, "train/loss", 2.0)]}


def test_a_tracker_that_fails_does_not_stop_the_run_and_gets_the_rest_at_its_end(tmp_path, fake, capsys):
    metrics = start(tmp_path, fake)
    write(metrics, [1])
    fake.down = True
    write(metrics, [2])
    write(metrics, [3])
    warning = "warning: wandb: no route to host; the run goes on, and tries again at its end\n"
    assert capsys.readouterr().err == warning
    fake.down = False
    metrics.close()
    assert fake.runs == {"run0": ALL} and capsys.readouterr().err == ""


def test_what_a_tracker_did_not_get_the_same_command_sends(tmp_path, fake, capsys):
    metrics = start(tmp_path, fake)
    fake.down = True
    write(metrics, [1, 2, 3])
    metrics.finish({"best_step": 2})
    metrics.close()
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("at its end") and second.endswith("; the same command sends what is missing")
    assert fake.runs == {"run0": []} and len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4
    fake.down = False
    metrics = start(tmp_path, fake, 3)
    metrics.finish({"best_step": 2})
    metrics.close()
    assert fake.runs == {"run0": ALL} and fake.results == {"run0": (2, {"result/best_step": 2})}


def test_a_tracker_that_cannot_be_opened_or_whose_file_is_damaged_is_an_error(tmp_path, fake):
    install = "No module named 'alembic'; run: pip install \"simcse_jax[wandb]\""
    missing = ModuleNotFoundError("No module named 'alembic'")
    for error, said in ((RuntimeError("not\nlogged in"), "not logged in"), (missing, install)):
        with pytest.raises(UserError) as raised:
            Tracker("wandb", tmp_path, Mock(side_effect=error))
        assert str(raised.value) == f"config.train.report_to=wandb: {said}" and not (tmp_path / "wandb.json").exists()
    for text in ("", "[]"):
        (tmp_path / "wandb.json").write_text(text)
        with pytest.raises(UserError, match=r"wandb\.json: "):
            Tracker("wandb", tmp_path, fake.open)
        assert not fake.runs and (tmp_path / "wandb.json").read_text() == text
