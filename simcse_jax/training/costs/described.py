"""Devices that programs are compiled for: TPUs and GPUs that are only described, or those of this machine."""

import os

import jax
from jax.experimental import topologies

from simcse_jax.devices.flops import KINDS
from simcse_jax.errors import UserError, installed, reason
from simcse_jax.models.attention import CUDA_PLUGINS
from simcse_jax.training.costs import gpus
from simcse_jax.training.costs.roofline import CHIPS

EXAMPLES = "v5e:2x4, v6e:4x4, v5p:2x2x2"
HERE = "here"
# No chip is used: several processes may compile at a time, and libtpu need not look for a TPU of this machine, nor
# complain that there is none. The same holds for CUDA's plugin.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
}


def prepare(with_gpus: bool = False) -> None:
    """Lets libtpu compile without a TPU, and CUDA's plugin without a GPU; call it before JAX uses a device."""
    # With TPUs among the platforms JAX would look for one here. Without CUDA among them its compiler is not loaded.
    jax.config.update("jax_platforms", "cpu,cuda" if with_gpus and any(map(installed, CUDA_PLUGINS)) else "cpu")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def local_topology() -> str:
    """The name of the devices that JAX finds here, as a topology: `h200:here`."""
    kind = jax.devices()[0].device_kind
    if kind not in KINDS:
        raise UserError(f"--topology {HERE}: the device here is {kind}; known are {', '.join(KINDS)}")
    return f"{KINDS[kind]}:{HERE}"


def described_devices(topology: str) -> list[jax.Device]:
    """The chips of a topology such as v5e:2x4 or the GPUs of one such as h200:8, none needed; or those here."""
    kind, _, shape = topology.partition(":")
    if kind not in CHIPS:
        raise UserError(
            f"--topology {topology}: must be one of {', '.join(CHIPS)} and a shape, e.g. {EXAMPLES}, {gpus.EXAMPLES}; "
            f"or {HERE} alone, for the devices of this machine"
        )
    if shape == HERE:
        return jax.devices()
    return _gpus(topology) if gpus.is_gpu(topology) else _tpus(topology)


def _tpus(topology: str) -> list[jax.Device]:
    if not installed("libtpu"):
        raise UserError(
            "libtpu is missing: run `pip install libtpu`, best in an environment of its own, since "
            "with it other JAX programs look for a TPU unless JAX_PLATFORMS=cpu is set"
        )
    # Without this option a v4 chip counts as two devices; since v5p a chip is always one.
    options = {"chip_config_name": "megacore"} if topology.startswith("v4:") else {}
    try:
        return list(topologies.get_topology_desc(topology, "tpu", **options).devices)
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"--topology {topology}: {reason(error)}; examples are {EXAMPLES}") from None


def _gpus(topology: str) -> list[jax.Device]:
    nodes, gpus_per_node = gpus.nodes_and_gpus(topology)
    if not any(map(installed, CUDA_PLUGINS)):
        raise UserError(
            f'--topology {topology}: JAX\'s CUDA plugin is missing: run `pip install "jax[cuda13]"` (4.4 GB, best in '
            "an environment of its own; no GPU is needed)"
        )
    config = gpus.target(topology.partition(":")[0])
    shape = f"1x{nodes}x{gpus_per_node}"  # slices, nodes, GPUs of a node
    try:
        return list(topologies.get_topology_desc(topology, "cuda", target_config=config, topology=shape).devices)
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"--topology {topology}: JAX's CUDA plugin cannot describe it: {reason(error)}") from None
