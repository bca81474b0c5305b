import json
from unittest.mock import Mock, call

import pytest

from simcse_jax.errors import UserError
from simcse_jax.runs.metrics_file import Metrics, add_groups, flatten_numbers


def test_reporters_get_each_line_in_groups_and_the_numbers_of_the_result_and_are_all_closed(tmp_path):
    metrics, first, second = Metrics(tmp_path, None), Mock(), Mock()
    metrics.add(first)
    metrics.add(second)
    metrics.write(4, {"loss": 0.5, "analysis": {"anisotropy": 0.25}})
    metrics.finish({})
    metrics.finish({"best_step": 3, "dev": {"spearman": 70.0}})
    (tmp_path / ".metrics.jsonl.tmp").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        metrics.close()
    ends = [call.finish(4, {}), call.finish(3, {"result/best_step": 3, "result/dev/spearman": 70.0}), call.close()]
    got = [call.write(4, {"train/loss": 0.5, "analysis/anisotropy": 0.25}), call.flush(), *ends]
    assert first.mock_calls == second.mock_calls == got
    line = {"loss": 0.5, "eval/dev": 70.0, "analysis": {"anisotropy": 0.25}}
    assert add_groups(line) == {"train/loss": 0.5, "eval/dev": 70.0, "analysis/anisotropy": 0.25}
    result = {"dev": {"spearman": 70.5, "mean": {"pearson": 3}}, "transfer_protocol": "sklearn", "average": None}
    assert flatten_numbers(result, "result/") == {"result/dev/spearman": 70.5, "result/dev/mean/pearson": 3}


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_first_line_is_there_at_once_others_before_the_next_checkpoint_up_to_a_resumed_step(tmp_path, monkeypatch):
    metrics = Metrics(tmp_path, None)
    for step in (1, 2):
        metrics.write(step, {"loss": 1.0})
    assert steps(tmp_path) == [1]
    metrics.flush()
    assert steps(tmp_path) == [1, 2]
    metrics.close()
    metrics = Metrics(tmp_path, 2)  # resumed
    metrics.write(3, {"loss": 1.0})
    assert steps(tmp_path) == [1, 2, 3]
    metrics.close()
    monkeypatch.setattr("simcse_jax.runs.metrics_file.WRITE_SECONDS", 0)
    metrics = Metrics(tmp_path, None)
    (tmp_path / ".metrics.jsonl.tmp").mkdir()
    metrics.write(1, {"loss": 1.0})  # by one process alone: the others would wait for it
    with pytest.raises(UserError, match=r"metrics\.jsonl: cannot be written"):
        metrics.flush()
    (tmp_path / ".metrics.jsonl.tmp").rmdir()
    metrics.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": 1.0}
    metrics = Metrics(tmp_path, None)
    for step in range(5):
        metrics.write(step, {"loss": 1.0})
    metrics.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "lo')  # a kill in the middle of a line
    metrics = Metrics(tmp_path, 3)
    metrics.write(4, {"loss": 2.0})
    metrics.close()
    assert steps(tmp_path) == [0, 1, 2, 3, 4]
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n')  # damaged, not cut off
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2: not valid JSON"):
        Metrics(tmp_path, 1)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    Metrics(tmp_path, None).close()  # nothing to resume from: from the start again
    assert (tmp_path / "metrics.jsonl").read_text() == ""
