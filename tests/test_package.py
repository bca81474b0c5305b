"""The top of the package: lazy import and version."""

import subprocess
import sys

import pytest
from support import ROOT

import simcse_jax


def test_the_class_is_listed_before_jax_is_imported():
    code = "import simcse_jax, sys; print('SimCSE' in dir(simcse_jax), 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["True", "False"], done.stderr
    assert simcse_jax.SimCSE.__name__ == "SimCSE" and (ROOT / "simcse_jax" / "py.typed").is_file()
    with pytest.raises(AttributeError, match="has no attribute 'SimSCE'"):
        _ = simcse_jax.SimSCE
