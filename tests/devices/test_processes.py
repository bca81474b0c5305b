"""What one process can tell of several; tests/test_processes.py starts them for real."""

import jax
import numpy as np
import pytest
from support import run

from simcse_jax.devices import processes
from simcse_jax.devices.mesh import data_mesh, place, replicate, replicated, split_over_examples
from simcse_jax.errors import UserError


@pytest.fixture
def mesh():
    return data_mesh(jax.devices()[:4])


def test_each_device_s_rows_are_read_and_no_others(mesh):
    rows = {"a": np.arange(24).reshape(8, 3), "b": np.arange(8)}
    asked = []

    def read(part):
        asked.append(part)
        return {name: value[part] for name, value in rows.items()}

    placed = place(read, 8, split_over_examples(mesh))
    assert sorted((part.start, part.stop) for part in asked) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    for name, value in rows.items():
        np.testing.assert_array_equal(placed[name], value)
        assert [shard.data.shape[0] for shard in placed[name].addressable_shards] == [2] * 4


def test_a_replicated_array_is_whole_on_every_device(mesh):
    tree = replicate({"a": np.arange(6).reshape(2, 3), "b": np.float32(2)}, replicated(mesh))
    assert tree["a"].is_fully_replicated and len(tree["a"].addressable_shards) == 4
    np.testing.assert_array_equal(tree["a"].addressable_shards[3].data, np.arange(6).reshape(2, 3))
    assert tree["b"].shape == () and float(tree["b"]) == 2


def test_a_mistake_of_one_process_ends_all(monkeypatch):
    with pytest.raises(UserError, match=r"^mine$"), processes.together():
        raise UserError("mine")
    with processes.together():
        pass
    monkeypatch.setattr(processes, "gather", lambda text: ["", "data.train=x: no such file"])
    with pytest.raises(UserError, match=r"^process 1: data\.train=x: no such file$"), processes.together():
        pass


def test_processes_that_do_not_run_the_same_are_told(monkeypatch):
    processes.agree({"data.train": "a"})
    monkeypatch.setattr(processes, "gather", lambda text: [text, text] if text == "same" else [text, text, "b"])
    processes.agree({"the config": "same"})
    with pytest.raises(UserError, match=r"data\.train: process 2 has another one than process 0"):
        processes.agree({"the config": "same", "data.train": "a"})


def test_processes_that_cannot_be_found(tmp_path):
    args = ("--config=configs/unsup_bert.py", f"--workdir={tmp_path}/run", "--config.parallel.processes=0")
    done = run("main", *args)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == 1 and "parallel.processes=0: " in told[0]
    assert "parallel.processes=1 for this process alone" in told[0]


@pytest.mark.parametrize("text", ["", "a line", "Grüße"])
def test_one_process_gathers_its_own_text(text):
    assert processes.gather(text) == [text]
