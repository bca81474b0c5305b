import importlib
import os
import subprocess
import sys

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


def test_a_pytorch_that_was_imported_before_stays(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    importlib.reload(tensorboard)
    assert sys.modules["torch"] is sys
