"""The first thing that a newcomer runs."""

import os
import re
import subprocess
import sys

import pytest
from support import ROOT

# As the interpreter, but training ends early.
PYTHON = """#!/bin/sh
case "$*" in *simcse_jax.main*) set -- "$@" --config.train.max_steps=20 --config.eval.every=10 ;; esac
exec {} "$@"
"""


@pytest.mark.optimized
@pytest.mark.slow
def test_the_quickstart_shows_a_gain_on_held_out_pairs(minilm, tmp_path):
    (tmp_path / "python").write_text(PYTHON.format(sys.executable))
    (tmp_path / "python").chmod(0o755)
    command = ["bash", "examples/quickstart.sh", str(tmp_path / "python"), str(tmp_path / "run")]
    ours = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # of the tests: eight devices, and worse programs
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    before, _, after = (float(score) for score in re.findall(r"^ *(\d+\.\d\d)$", done.stdout, re.MULTILINE))
    assert after > before + 0.5
    assert "Next steps" in done.stdout
    assert (tmp_path / "run" / "export" / "model.safetensors").is_file()
    assert any((tmp_path / "run" / "checkpoints").iterdir())
