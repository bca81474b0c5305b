import importlib
import os
import subprocess
import sys

import pytest
from support import ROOT

from simcse_jax.runs import tensorboard

SCRIPT = """
import sys
import simcse_jax.runs.tensorboard
assert "torch" not in sys.modules
import torch
print(torch.NAME)
"""


def test_pytorch_is_not_imported_and_can_be_later(tmp_path):
    (tmp_path / "torch.py").write_text('NAME = "another PyTorch"')
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("another PyTorch\n", 0), done.stderr


@pytest.mark.parametrize("before", [sys, None], ids=["imported", "blocked"])
def test_what_a_user_made_of_pytorch_before_stays(before, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", before)
    importlib.reload(tensorboard)
    assert sys.modules["torch"] is before
