"""The top of the package: lazy import and version."""

import subprocess
import sys

import pytest
from support import ROOT

import simcse_jax


def test_the_package_is_light_and_the_class_imports_nothing_that_encoding_does_not_need():
    heavy = ("jax", "transformers", "datasets", "tensorflow_datasets", "torch", "tensorflow")
    late = ("orbax", "transformers", "scipy", "datasets", "tensorboardX", "matplotlib")
    code = f"import sys, simcse_jax; there = [name for name in {heavy!r} if name in sys.modules]; "
    code += "listed = {'SimCSE', 'train', 'Run'} <= {*dir(simcse_jax)}; from simcse_jax import SimCSE; "
    code += f"print(listed, there, [name for name in {late!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "True [] []", done.stderr
    assert simcse_jax.SimCSE.__name__ == "SimCSE" and (ROOT / "simcse_jax" / "py.typed").is_file()
    with pytest.raises(AttributeError, match="has no attribute 'SimSCE'"):
        _ = simcse_jax.SimSCE
