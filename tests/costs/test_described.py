import importlib.util

import pytest

from simcse_jax.costs.described import described_devices
from simcse_jax.errors import UserError


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("v5e:2x4", r"`pip install libtpu`.*JAX_PLATFORMS=cpu"),
        ("h200:1", r'--topology h200:1: JAX\'s CUDA plugin is missing: run `pip install "jax\[cuda13\]"`'),
        ("h200:0", "--topology h200:0: must be a number of GPUs"),
        ("h2000:1", "must be one of v4, v5e, v5p, v6e, a100, h100, h200, b200 and a shape"),
    ],
)
def test_a_missing_compiler_and_an_unknown_topology_are_explained(topology, message, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        described_devices(topology)
