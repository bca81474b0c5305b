import struct
import time

from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters.tensorboard import TensorBoard


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
    metrics.add(TensorBoard(tmp_path, None))
    assert not (tmp_path / "tensorboard").exists()  # there is nothing to show yet
    metrics.write(1, {"loss": 0.5, "analysis": {"anisotropy": 0.25}})
    metrics.flush()
    metrics.write(2, {"loss": 0.125})
    metrics.close()
    (first,) = (tmp_path / "tensorboard").iterdir()
    expected = [("train/loss", 1, 0.5), ("analysis/anisotropy", 1, 0.25), ("train/loss", 2, 0.125)]
    assert events(first) == [("start", 0), *expected]
    first.rename(first.with_name("earlier"))  # or one of the same second would have its name
    metrics = Metrics(tmp_path, 1)
    metrics.add(TensorBoard(tmp_path, 1))
    metrics.write(2, {"loss": 0.75})
    metrics.close()
    (second,) = (tmp_path / "tensorboard").glob("events*")
    assert events(second) == [("start", 2), ("train/loss", 2, 0.75)]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
