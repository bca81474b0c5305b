import importlib.util
from unittest.mock import Mock

import jax
import pytest

from simcse_jax.errors import UserError
from simcse_jax.training.costs import described
from simcse_jax.training.costs.described import described_devices, local_topology

pytestmark = pytest.mark.platforms


def test_a_missing_compiler_and_an_unknown_topology_are_explained(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for topology, message in (
        ("v5e:2x4", r"`pip install libtpu`.*JAX_PLATFORMS=cpu"),
        ("h200:1", r'--topology h200:1: JAX\'s CUDA plugin is missing: run `pip install "jax\[cuda13\]"`'),
        ("h200:0", "--topology h200:0: must be a number of GPUs"),
        ("h2000:1", "must be one of v4, v5e, v5p, v6e, a100, h100, h200, b200 and a shape, .*; or here alone"),
    ):
        with pytest.raises(UserError, match=message):
            described_devices(topology)

    fail = Mock(side_effect=jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no such field"))
    monkeypatch.setattr(described, "installed", lambda name: True)
    monkeypatch.setattr(described.topologies, "get_topology_desc", fail)
    with pytest.raises(UserError, match=r"^--topology h200:8: JAX's CUDA plugin cannot describe it: .*no such field"):
        described_devices("h200:8")


def test_the_devices_at_hand_are_a_topology_if_their_peaks_are_known(monkeypatch):
    with pytest.raises(UserError, match=r"^--topology here: the device here is cpu; known are TPU v4, .*, NVIDIA B200"):
        local_topology()
    monkeypatch.setitem(described.KINDS, "cpu", "h200")
    assert local_topology() == "h200:here" and described_devices("h200:here") == jax.devices()
