"""What one process can find out of several; tests/training/test_several_processes.py starts them for real."""

import pytest
from support import refused, run

from simcse_jax.devices import processes
from simcse_jax.errors import UserError


def test_a_mistake_of_one_process_or_another_config_ends_all(monkeypatch):
    assert [processes.gather(text) for text in ("", "Grüße")] == [[""], ["Grüße"]]  # of one process
    with pytest.raises(UserError, match=r"^mine$"), processes.exit_together():
        raise UserError("mine")
    with processes.exit_together():
        processes.agree({"data.train": "a"})
    monkeypatch.setattr(processes, "gather", lambda text: ["", "data.train=x: no such file"])
    with pytest.raises(UserError, match=r"^process 1: data\.train=x: no such file$"), processes.exit_together():
        pass
    monkeypatch.setattr(processes, "gather", lambda text: [text, text] if text == "same" else [text, text, "b"])
    processes.agree({"the config": "same"})
    with pytest.raises(UserError, match=r"data\.train: differs between process 2 and process 0"):
        processes.agree({"the config": "same", "data.train": "a"})


def test_processes_that_cannot_be_found(tmp_path):
    args = ("--config=configs/unsup_bert.py", f"--workdir={tmp_path}/run", "--config.parallel.processes=0")
    refused(run("train", *args), "parallel.processes=0: ", "parallel.processes=1 ")
