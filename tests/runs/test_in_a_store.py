"""Workdirs in an object store: as in a folder, and what goes wrong there is reported in one line."""

import json
import os
import signal
import subprocess
import time

import pytest
from support import finish, refused, run, start_command, start_processes, train_args, without_speed
from support.forks import CONSTANTS
from support.jobs import another_job
from support.object_store import NEEDS_GCSFS, WRITING

from simcse_jax.errors import UserError
from simcse_jax.host import locks as in_store
from simcse_jax.host.locks import held
from simcse_jax.host.storage import as_path

HEAD = "--config.model.mlp=always"


def metrics(text: str) -> list[dict[str, float]]:
    """All that was logged but the speed."""
    return without_speed(map(json.loads, text.splitlines()))


def copy(store, source: str, target: str) -> None:
    for name in store.names(source + "/"):
        store.put(target + name.removeprefix(source), store.objects[name].data)


@pytest.fixture
def impatient(monkeypatch) -> None:
    """Jobs renew a lock, look at it and take it over sooner than users' jobs do."""
    seconds = {"HEARTBEAT": 1, "LOST": 5, "LOOK": 0.2}
    monkeypatch.setenv(CONSTANTS, " ".join(f"simcse_jax.host.locks.{name}={value}" for name, value in seconds.items()))


@pytest.fixture(scope="module")
def stored(store, tiny_bert, corpus) -> list[str]:
    """The arguments of a run in gs://bucket/run that has ended; `trained` is the same one in a folder."""
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], "gs://bucket/run", HEAD)
    done = run("train", *args)
    assert done.returncode == 0, done.stderr
    assert "gcsfs" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    return args


@NEEDS_GCSFS
def test_a_run_in_a_store_is_the_same_as_in_a_folder(store, stored, trained):
    assert json.loads(store.text("run/run.json")) == json.loads((trained / "run.json").read_text())
    assert metrics(store.text("run/metrics.jsonl")) == metrics((trained / "metrics.jsonl").read_text())
    assert store.text("run/result.json") == (trained / "result.json").read_text()
    there = {name for name in store.names("run/model/")}
    assert there == {f"run/model/{path.name}" for path in (trained / "model").iterdir()}
    for name in there:
        assert store.objects[name].data == (trained / name.removeprefix("run/")).read_bytes()
    steps = {name.split("/")[2] for name in store.names("run/checkpoints/")}
    assert steps == {path.name for path in (trained / "checkpoints").iterdir()} == {"6", "8"}
    (events,) = store.names("run/tensorboard/")
    (local,) = (trained / "tensorboard").iterdir()
    assert len(store.objects[events].data) == local.stat().st_size


@NEEDS_GCSFS
@pytest.mark.slow
def test_a_finished_run_in_a_store_changes_nothing(store, stored):
    before = {name: store.objects[name].data for name in store.names("run/") if "/tensorboard/" not in name}
    done = run("train", *stored)
    assert done.returncode == 0 and "resuming at step 8 of 8" in done.stdout, done.stderr
    assert {name: store.objects[name].data for name in store.names("run/") if "/tensorboard/" not in name} == before


@NEEDS_GCSFS
@pytest.mark.slow
def test_a_run_in_a_store_is_scored_and_exported(store, stored, trained, corpus, tmp_path):
    tables = []
    for model in ("gs://bucket/run", trained):
        done = run("evaluate", "--model", model, "--data", corpus["dev"])
        assert done.returncode == 0, done.stderr
        tables.append(done.stdout.splitlines()[1:])
    assert tables[0] == tables[1]
    for workdir, name in (("gs://bucket/run", "remote"), (trained, "local")):
        (tmp_path / name).mkdir()
        done = run("export", "--workdir", workdir, "--output", tmp_path / name / "model")  # whose card has that name
        assert done.returncode == 0, done.stderr
    files = [path.relative_to(tmp_path / "local") for path in (tmp_path / "local").rglob("*") if path.is_file()]
    assert len(files) > 5
    for file in files:
        assert (tmp_path / "remote" / file).read_bytes() == (tmp_path / "local" / file).read_bytes(), file


@NEEDS_GCSFS
def test_missing_models_are_reported_in_one_line(store):
    from simcse_jax.runs.loading import load_model

    with pytest.raises(UserError, match=r"^gs://bucket/none: no run.json there, so it is not a run's folder$"):
        load_model("gs://bucket/none")


def cut_off(store, prefix: str) -> None:
    """Cuts the longest object off."""
    name = max(store.names(prefix), key=lambda name: len(store.objects[name].data))
    data = store.objects[name].data
    store.put(name, data[: len(data) // 2])


def assert_same_end(store, name: str, of: str = "run") -> None:
    assert metrics(store.text(f"{name}/metrics.jsonl"))[-1] == metrics(store.text(f"{of}/metrics.jsonl"))[-1]
    assert store.text(f"{name}/result.json") == store.text(f"{of}/result.json")


@NEEDS_GCSFS
@pytest.mark.slow
@pytest.mark.parametrize("part", ["params/", "optimizer/d/", "metrics/metrics"])
def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(store, stored, part):
    workdir = "damaged-" + part.split("/")[0]
    copy(store, "run", workdir)
    cut_off(store, f"{workdir}/checkpoints/8/{part}")
    done = run("train", *stored, f"--workdir=gs://bucket/{workdir}")
    assert done.returncode == 0, done.stderr
    assert "it was moved to damaged_checkpoints/8" in done.stdout
    assert "resuming at step 6 of 8" in done.stdout
    assert "Exception" not in done.stderr, done.stderr
    assert store.names(f"{workdir}/damaged_checkpoints/8/{part}") and "8" in store.text(
        f"{workdir}/damaged_checkpoints/8.txt"
    )
    assert_same_end(store, workdir)


@NEEDS_GCSFS
@pytest.mark.slow
def test_a_save_that_was_killed_in_a_store_is_as_if_it_had_not_begun(store, stored):
    copy(store, "run", "begun")
    for name in store.names("begun/checkpoints/8/"):
        if name.endswith("/8/commit_success.txt") or "/optimizer/" in name:  # what comes last
            store.delete(name)
    done = run("train", *stored, "--workdir=gs://bucket/begun")
    assert done.returncode == 0 and "resuming at step 6 of 8" in done.stdout, done.stderr
    assert "damaged" not in done.stdout
    assert_same_end(store, "begun")


def start(args: list[str]) -> subprocess.Popen:
    return start_command("train", *args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@NEEDS_GCSFS
@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_run_in_a_store_resumes(store, tiny_bert, corpus, sent, impatient):
    workdir = f"stopped-{sent}"
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], f"gs://bucket/{workdir}", "--config.train.max_steps=20")
    with start(args) as child:
        while child.poll() is None and not store.names(f"{workdir}/checkpoints/9/"):
            time.sleep(0.001)
        child.send_signal(sent)
        child.communicate()
    assert child.returncode == (75 if sent == signal.SIGTERM else -sent)
    done = run("train", *args)
    assert done.returncode == 0 and "resuming at step" in done.stdout, done.stderr
    steps = [line["step"] for line in metrics(store.text(f"{workdir}/metrics.jsonl")) if "loss" in line]
    assert steps == sorted(set(steps)) and set(range(2, 21, 2)) <= set(steps)
    assert "damaged" not in done.stdout and store.text(f"{workdir}/result.json")


@NEEDS_GCSFS
@pytest.mark.slow
def test_one_job_at_a_time_writes_to_a_workdir_in_a_store(store, stored, monkeypatch):
    monkeypatch.setattr(in_store, "HEARTBEAT", 0.1)
    before = {name: store.objects[name].data for name in store.names("run/")}
    with another_job(held(as_path("gs://bucket/run"))):
        refused(run("train", *stored), f"gs://bucket/run: process {os.getpid()} on ", " is writing there")
    assert {name: store.objects[name].data for name in store.names("run/")} == before


@NEEDS_GCSFS
@pytest.mark.slow
def test_a_right_that_is_missing_or_lost_is_reported_in_one_line(store, tiny_bert, corpus, monkeypatch, impatient):
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], "gs://bucket/lost", "--config.train.max_steps=40")
    store.put("something", b"")
    monkeypatch.setattr(store, "refused", r"GET /storage/v1/b/bucket(\?|$)")  # what Orbax asks for
    done = run("train", *args)
    reported = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and reported.startswith("error: gs://bucket/lost/checkpoints: cannot be read: 403 GET")
    assert "Traceback" not in done.stderr, done.stderr

    monkeypatch.setattr(store, "refused", None)
    with start(args) as child:
        while child.poll() is None and not store.names("lost/checkpoints/6/commit_success.txt"):
            time.sleep(0.001)
        monkeypatch.setattr(store, "refused", WRITING)
        output = child.communicate()[0].decode()
    assert child.returncode == 2 and "Traceback" not in output, output
    assert "permission" in output.splitlines()[-1] and output.splitlines()[-1].startswith("error: gs://bucket/lost/")
    monkeypatch.setattr(store, "refused", None)
    done = run("train", *args)
    assert done.returncode == 0 and "resuming at step" in done.stdout and "damaged" not in done.stdout, done.stderr


@NEEDS_GCSFS
@pytest.mark.slow
def test_several_processes_share_a_store(store, stored):
    ended = finish(start_processes([*stored, "--workdir=gs://bucket/shared"]))
    assert [code for code, _, _ in ended] == [0, 0], ended
    ours, theirs = (metrics(store.text(f"{name}/metrics.jsonl")) for name in ("shared", "run"))
    assert [sorted(line) for line in ours] == [sorted(line) for line in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-4, abs=1e-4)

    cut_off(store, "shared/checkpoints/8/params/")
    ended = finish(start_processes([*stored, "--workdir=gs://bucket/shared"]))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert "damaged_checkpoints/8" in ended[0][1] and "resuming at step 6 of 8" in ended[0][1]
    assert metrics(store.text("shared/metrics.jsonl"))[-1] == pytest.approx(theirs[-1], rel=1e-4, abs=1e-4)
