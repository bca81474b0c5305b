import json

import jax
import pytest
from support import call, refused, succeeded, train_args

from simcse_jax.training.profiling import trace_steps


def test_the_third_to_the_seventh_step_are_traced_or_fewer_and_none_without_a_folder(tmp_path, capsys, monkeypatch):
    record = []  # what happens, in its order, in place of a trace
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: record.append("start"))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: record.append("stop"))
    for steps, expected in (
        (9, [1, 2, "start", 3, 4, 5, 6, 7, "stop", 8, 9]), (5, [1, 2, "start", 3, 4, 5, "stop"]),
        (2, [1, "start", 2, "stop"]), (1, ["start", 1, "stop"]),
    ):  # fmt: skip
        with trace_steps(lambda step: record.append(step) or step, tmp_path, steps) as update:
            assert [update(step) for step in range(1, steps + 1)] == list(range(1, steps + 1))
        assert record == expected
        (line,) = capsys.readouterr().out.splitlines()
        count = expected.index("stop") - expected.index("start") - 1
        assert line.startswith(f"{tmp_path}: a trace of {count} step") and "xprof" in line and "perfetto" in line
        record.clear()
    with pytest.raises(RuntimeError), trace_steps(lambda step: record.append(step), tmp_path, 9) as update:
        for step in range(1, 5):
            update(step)
        raise RuntimeError
    assert record == [1, 2, "start", 3, 4, "stop"] and "a trace of 2 steps" in capsys.readouterr().out
    with trace_steps(len, None, 9) as update:
        assert update is len
    assert len(record) == 6


@pytest.mark.slow
def test_a_run_writes_its_trace_and_is_the_same_run(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], "", tmp_path / "run", "--config.train.max_steps=4")
    done = succeeded(call("train", *args, f"--profile={tmp_path / 'trace'}"))
    assert f"{tmp_path / 'trace'}: a trace of 2 steps" in done.stdout
    (trace,) = (tmp_path / "trace").rglob("*.xplane.pb")
    assert b"jit_update" in trace.read_bytes()
    assert "profile" not in json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    again = call("train", *args, f"--profile={tmp_path / 'trace'}")
    assert again.returncode == 0 and "resuming at step 4 of 4" in again.stdout
    assert f"--profile {tmp_path / 'trace'}: no step is left that could be traced" in again.stdout


def test_a_folder_or_data_that_cannot_be_used_leave_no_folder(tiny_bert, corpus, tmp_path):
    (tmp_path / "file").write_text("")
    for data, trace, named in ((corpus["txt"], "file/in", "--profile"), (tmp_path / "none.txt", "trace", "none.txt")):
        args = train_args(tiny_bert, data, "", tmp_path / "run")
        refused(call("train", *args, f"--profile={tmp_path / trace}"), named)
        assert not (tmp_path / "trace").exists() and not (tmp_path / "run").exists()
