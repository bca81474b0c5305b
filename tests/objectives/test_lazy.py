import subprocess
import sys

import jax
import numpy as np
from support import ROOT

from simcse_jax.objectives import lazy

SCRIPT = """
import sys
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.flags import parse
from simcse_jax.objectives.lazy import Array, jax, jnp
import simcse_jax.objectives.registry
config, _ = parse(["--config=diffcse:simcse_plus_plus"], needs_workdir=False)
validate(config)
ineffective(config)
print({"jax", "flax", "optax"} & set(sys.modules), isinstance(jnp.ones(2), Array), "jax" in sys.modules)
"""


def test_jax_is_imported_when_it_is_used_and_not_to_check_a_config():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.endswith("set() True True\n"), done.stderr


def test_its_array_is_jax_s():
    assert isinstance(jax.numpy.ones(2), lazy.Array) and not isinstance(np.ones(2), lazy.Array)
    assert isinstance(jax.eval_shape(lambda: lazy.jnp.ones(2)), jax.ShapeDtypeStruct)
    assert lazy.jax.nn.softplus is jax.nn.softplus
