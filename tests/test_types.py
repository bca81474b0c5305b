"""Types: `make test-all` checks shapes at run time, and mypy knows the types of `SimCSE`'s results."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from support import ROOT

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.evaluation.sts import cosine
from simcse_jax.index.top_k import top_k
from simcse_jax.models.pooling import mean
from simcse_jax.objectives.similarity import normalize

SCRIPT = "import numpy as np; from simcse_jax.evaluation.sts import cosine; "
SCRIPT += "print(cosine(np.ones((2, 3)), np.ones((1, 3))).shape)"


@pytest.mark.slow
@pytest.mark.skipif("TYPES" not in os.environ, reason="TYPES=1 checks them")
def test_a_wrong_shape_is_an_error_in_the_tests_and_not_in_a_users_calls():
    for call in (
        lambda: mean(jnp.ones((2, 3, 4)), np.ones((2, 5), int)),
        lambda: normalize(jnp.ones((2, 3), int)),
        lambda: cosine(np.ones((2, 3)), np.ones((1, 3))),
        lambda: top_k(np.ones(3, np.float32), [], 1, data_mesh(jax.devices())),
    ):
        with pytest.raises(TypeCheckError):
            call()
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("(2,)\n", 0), done.stderr


@pytest.mark.docs
def test_mypy_knows_the_types_of_a_model_s_results(tmp_path):
    """`make check` runs mypy over the package."""
    asked = {
        "SimCSE": "def (name: str | pathlib.Path",
        'SimCSE("x").encode("y")': "numpy.ndarray[",
        'SimCSE("x").similarity("y", "z")': "float",
        'SimCSE("x").similarity(["y"], ["z"])': "numpy.ndarray[",
        'SimCSE("x").search("y")': "list[simcse_jax.index.index.Result]",
        'SimCSE("x").search(["y"], top_k=3)': "list[list[simcse_jax.index.index.Result]]",
    }
    file = tmp_path / "use.py"
    file.write_text("from simcse_jax import SimCSE\n" + "".join(f"reveal_type({each})\n" for each in asked))
    options = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    command = [sys.executable, "-m", "mypy", file, *options]  # its memory is free again after it
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    named = re.sub(r"tuple\[[^\[\]]*fallback=([\w.]+)\]", r"\1", done.stdout)
    for found, wanted in zip(re.findall(r'Revealed type is "(.*)"', named), asked.values(), strict=True):
        assert found.removeprefix("builtins.").startswith(wanted), (found, wanted)
