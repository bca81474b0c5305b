import json
import struct
import time

import pytest

from simcse_jax.errors import UserError
from simcse_jax.runs.metrics_file import Metrics


def events(path):
    """What a TensorBoard file says: (tag, step, value) of numbers, ("start", step) where earlier ones end."""
    from tensorboardX.proto.event_pb2 import Event

    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        if event.HasField("session_log"):
            found.append(("start", event.step))
        for value in event.summary.value:
            assert abs(event.wall_time - time.time()) < 60
            found.append((value.tag, event.step, round(value.simple_value, 3)))
    return found


def test_tensorboard_gets_every_line_once_and_forgets_those_after_the_resumed_step(tmp_path):
    metrics = Metrics(tmp_path, None)
    assert not (tmp_path / "tensorboard").exists()  # there is nothing to show yet
    metrics.write(1, {"loss": 0.5, "analysis": {"anisotropy": 0.25}})
    metrics.flush()
    metrics.write(2, {"loss": 0.125})
    metrics.close()
    (first,) = (tmp_path / "tensorboard").iterdir()
    expected = [("loss", 1, 0.5), ("analysis/anisotropy", 1, 0.25), ("loss", 2, 0.125)]
    assert events(first) == [("start", 0), *expected]

    first.rename(first.with_name("earlier"))  # or one of the same second would have its name
    metrics = Metrics(tmp_path, 1)
    metrics.write(2, {"loss": 0.75})
    metrics.close()
    (second,) = (tmp_path / "tensorboard").glob("events*")
    assert events(second) == [("start", 2), ("loss", 2, 0.75)]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2


def test_the_first_line_is_there_at_once_and_the_others_before_the_next_checkpoint(tmp_path):
    def steps():
        return [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]

    metrics = Metrics(tmp_path, None)
    metrics.write(1, {"loss": 1.0})
    metrics.write(2, {"loss": 1.0})
    assert steps() == [1]
    metrics.flush()
    assert steps() == [1, 2]
    metrics.close()
    metrics = Metrics(tmp_path, 2)  # resumed
    metrics.write(3, {"loss": 1.0})
    assert steps() == [1, 2, 3]
    metrics.close()


def test_metrics_that_cannot_be_written_are_reported_before_the_next_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_jax.runs.metrics_file.WRITE_SECONDS", 0)
    metrics = Metrics(tmp_path, None)
    (tmp_path / ".metrics.jsonl.tmp").mkdir()
    metrics.write(1, {"loss": 1.0})  # by one process alone: the others would wait for it
    with pytest.raises(UserError, match=r"metrics\.jsonl: cannot be written"):
        metrics.flush()
    (tmp_path / ".metrics.jsonl.tmp").rmdir()
    metrics.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": 1.0}


def test_a_damaged_line_of_the_metrics_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2: not valid JSON.*; remove that line"):
        Metrics(tmp_path, 1)


def test_metrics_go_back_to_the_resumed_step(tmp_path):
    metrics = Metrics(tmp_path, None)
    for step in range(5):
        metrics.write(step, {"loss": 1.0})
    metrics.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "lo')  # a kill in the middle of a line
    metrics = Metrics(tmp_path, 3)
    metrics.write(4, {"loss": 2.0})
    metrics.close()
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4]
    Metrics(tmp_path, None).close()  # nothing to resume from: from the start again
    assert (tmp_path / "metrics.jsonl").read_text() == ""
