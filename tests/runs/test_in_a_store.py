"""Workdirs in an object store: as in a folder, and what goes wrong there is reported in one line."""

import json
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from support import refused, run, start_command, succeeded, train_args, without_speed
from support.object_store import NEEDS_GCSFS, WRITING

from simcse_jax.host.storage import as_path
from simcse_jax.runs.exporting import export
from simcse_jax.runs.loading import load_model

pytestmark = NEEDS_GCSFS


def metrics(text: str) -> list[dict[str, float]]:
    return without_speed(map(json.loads, text.splitlines()))


@pytest.fixture(scope="module")
def stored(store, tiny_bert, corpus) -> list[str]:
    """The arguments of a run in gs://bucket/run that has ended; `trained` is the same one in a folder."""
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], "gs://bucket/run", "--config.model.mlp=always")
    done = succeeded(run("train", *args))
    assert "gcsfs" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    return args


def test_a_run_in_a_store_is_the_same_as_in_a_folder_and_is_loaded_and_exported(store, stored, trained, tmp_path):
    assert json.loads(store.text("run/run.json")) == json.loads((trained / "run.json").read_text())
    assert metrics(store.text("run/metrics.jsonl")) == metrics((trained / "metrics.jsonl").read_text())
    assert store.text("run/result.json") == (trained / "result.json").read_text()
    there = {f"run/model/{path.name}" for path in (trained / "model").iterdir()}
    assert there == {*store.names("run/model/")}
    for name in there:
        assert store.objects[name].data == (trained / name.removeprefix("run/")).read_bytes()
    steps = {name.split("/")[2] for name in store.names("run/checkpoints/")}
    assert steps == {path.name for path in (trained / "checkpoints").iterdir()} == {"6", "8"}
    (events,) = store.names("run/tensorboard/")
    (local,) = (trained / "tensorboard").iterdir()
    assert len(store.objects[events].data) == local.stat().st_size
    ours, theirs = load_model("gs://bucket/run"), load_model(str(trained))
    assert ours.params.keys() == theirs.params.keys()
    assert all(np.array_equal(value, theirs.params[name]) for name, value in ours.params.items())
    for workdir, name in (("gs://bucket/run", "remote"), (trained, "local")):
        (tmp_path / name).mkdir()
        export(as_path(str(workdir)), tmp_path / name / "model")  # whose card has that name
    files = [path.relative_to(tmp_path / "local") for path in (tmp_path / "local").rglob("*") if path.is_file()]
    assert len(files) > 5
    for file in files:
        assert (tmp_path / "remote" / file).read_bytes() == (tmp_path / "local" / file).read_bytes(), file


@pytest.mark.slow
@pytest.mark.parametrize("part", ["optimizer/d/", "metrics/metrics", None])
def test_a_damaged_or_unfinished_checkpoint_gives_way_to_the_one_before(store, stored, part):
    workdir = f"other-{(part or 'begun').split('/')[0]}"
    for name in store.names("run/"):
        store.put(workdir + name.removeprefix("run"), store.objects[name].data)
    if part:  # its longest object is cut off
        sizes = {name: len(store.objects[name].data) for name in store.names(f"{workdir}/checkpoints/8/{part}")}
        name = max(sizes, key=sizes.__getitem__)
        store.put(name, store.objects[name].data[: sizes[name] // 2])
    else:  # a kill before what comes last
        for name in store.names(f"{workdir}/checkpoints/8/"):
            if name.endswith("/8/commit_success.txt") or "/optimizer/" in name:
                store.delete(name)
    done = run("train", *stored, f"--workdir=gs://bucket/{workdir}")
    assert done.returncode == 0 and "Exception" not in done.stderr, done.stderr
    assert "resuming at step 6 of 8" in done.stdout
    assert ("it was moved to damaged_checkpoints/8" in done.stdout) == bool(part)
    assert not part or store.names(f"{workdir}/damaged_checkpoints/8/{part}")
    assert not part or "8" in store.text(f"{workdir}/damaged_checkpoints/8.txt")
    assert metrics(store.text(f"{workdir}/metrics.jsonl"))[-1] == metrics(store.text("run/metrics.jsonl"))[-1]
    assert store.text(f"{workdir}/result.json") == store.text("run/result.json")


def start(args: list[str]) -> subprocess.Popen:
    return start_command("train", *args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_a_killed_run_in_a_store_resumes(store, tiny_bert, corpus):
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], "gs://bucket/killed", "--config.train.max_steps=20")
    with start(args) as child:
        while child.poll() is None and not store.names("killed/checkpoints/9/"):
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    done = run("train", *args)
    assert done.returncode == 0 and "resuming at step" in done.stdout, done.stderr
    steps = [line["step"] for line in metrics(store.text("killed/metrics.jsonl")) if "loss" in line]
    assert steps == sorted(set(steps)) and set(range(2, 21, 2)) <= set(steps)
    assert "damaged" not in done.stdout and store.text("killed/result.json")


@pytest.mark.slow
def test_the_later_of_two_jobs_goes_on_and_the_earlier_one_ends_at_its_next_save(store, tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], "gs://bucket/two", "--config.train.max_steps=40")
    with start(args) as first:
        while first.poll() is None and not store.names("two/checkpoints/6/commit_success.txt"):
            time.sleep(0.001)
        second = run("train", *args)
        output = first.communicate()[0]
    assert second.returncode == 0 and "resuming at step" in second.stdout, second.stderr
    assert first.returncode == 2 and "Traceback" not in output, output
    assert output.splitlines()[-1] == "error: gs://bucket/two: another job has taken over"
    alone = [arg.replace("gs://bucket/two", str(tmp_path / "alone")) for arg in args]
    succeeded(run("train", *alone))
    assert store.text("two/result.json") == (tmp_path / "alone" / "result.json").read_text()
    assert metrics(store.text("two/metrics.jsonl")) == metrics((tmp_path / "alone" / "metrics.jsonl").read_text())
    for step in ("", "@step=last"):
        ours, theirs = (load_model(f"{folder}{step}") for folder in ("gs://bucket/two", tmp_path / "alone"))
        assert all(np.array_equal(value, theirs.params[name]) for name, value in ours.params.items())
    assert store.names("two/.lock") == []


@pytest.mark.slow
def test_a_right_that_is_missing_or_lost_is_reported_in_one_line(store, tiny_bert, corpus, monkeypatch):
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], "gs://bucket/lost", "--config.train.max_steps=40")
    store.put("something", b"")
    monkeypatch.setattr(store, "refused", r"GET /storage/v1/b/bucket(\?|$)")  # what Orbax asks for
    refused(run("train", *args), "error: gs://bucket/lost/checkpoints: cannot be read: 403 GET")
    monkeypatch.setattr(store, "refused", None)
    with start(args) as child:
        while child.poll() is None and not store.names("lost/checkpoints/6/commit_success.txt"):
            time.sleep(0.001)
        monkeypatch.setattr(store, "refused", WRITING)
        output = child.communicate()[0]
    assert child.returncode == 2 and "Traceback" not in output, output
    assert re.fullmatch("error: gs://bucket/lost/.*permission.*", output.splitlines()[-1])
