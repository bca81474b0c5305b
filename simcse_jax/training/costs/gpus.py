"""GPUs that need not be present: their names, and what XLA must know of one to compile for it."""

import re
from typing import NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.training.costs.roofline import CHIPS

EXAMPLES = "h200:1, h100:8, h200:2x8 (nodes x GPUs)"
NODE = 8  # the most GPUs of a node: what NVLink connects in one
MOST = 65_536  # GPUs of a topology


class GpuSpec(NamedTuple):
    """The properties of a GPU that the compiler needs; sizes in bytes."""

    name: str
    capability: tuple[int, int]
    features: str  # of the compute capability: "a" of sm_90a
    cores: int  # streaming multiprocessors
    fpus: int  # of a core
    clock: float  # GHz
    l2: int
    shared: int  # memory of a core
    shared_by_block: int  # that a block may ask for


# Numbers of XLA's own descriptions (openxla/xla, xla/backends/gpu/target_config/specs: a100_sxm_80, h100_sxm, h200,
# b200). Memory and its bandwidth are in `roofline.CHIPS`.
LIMITS = {
    "a100": GpuSpec("NVIDIA A100-SXM4-80GB", (8, 0), "NONE", 108, 64, 1.41, 41943040, 167936, 166912),
    "h100": GpuSpec("NVIDIA H100 80GB HBM3", (9, 0), "ACCELERATED_FEATURES", 132, 128, 1.98, 52428800, 233472, 232448),
    "h200": GpuSpec("NVIDIA H200", (9, 0), "ACCELERATED_FEATURES", 132, 128, 1.98, 52428800, 233472, 232448),
    "b200": GpuSpec("NVIDIA B200", (10, 0), "ACCELERATED_FEATURES", 148, 128, 1.965, 132644864, 233472, 232448),
}
# The same for all of them: a field of GpuDeviceInfoProto and its value.
COMMON = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "shared_memory_per_block": 49152,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "device_address_bits": 64,
}
DNN = (9, 10, 0)  # cuDNN, of which XLA may use what this version has


def is_gpu(topology: str) -> bool:
    """Whether a topology's name is that of GPUs."""
    return topology.partition(":")[0] in LIMITS


def nodes_and_gpus(topology: str) -> tuple[int, int]:
    """The nodes of a topology such as h200:8 or h200:2x8, and the GPUs of each."""
    match = re.fullmatch(r"(?:([1-9]\d{0,5})x)?([1-9]\d{0,5})", topology.partition(":")[2], re.ASCII)
    nodes, gpus = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    if not (0 < gpus <= NODE and nodes * gpus <= MOST):
        raise UserError(
            f"--topology {topology}: must be a number of GPUs, at most {NODE} a node and {MOST:,} in all, "
            f"e.g. {EXAMPLES}"
        )
    return nodes, gpus


def target(kind: str) -> str:
    """A GPU in the text form of XLA's GpuTargetConfigProto."""
    limits, chip = LIMITS[kind], CHIPS[kind]
    major, minor = limits.capability
    description = {
        "core_count": limits.cores,
        "fpus_per_core": limits.fpus,
        "clock_rate_ghz": limits.clock,
        "l2_cache_size": limits.l2,
        "shared_memory_per_core": limits.shared,
        "shared_memory_per_block_optin": limits.shared_by_block,
        "device_memory_size": int(chip.hbm),
        "memory_bandwidth": int(chip.hbm_bandwidth),
        "name": f'"{limits.name}"',
        "device_vendor": '"NVIDIA Corporation"',
        "dnn_version": f'"{".".join(map(str, DNN))}"',
    }
    fields = "\n".join(f"  {name}: {value}" for name, value in (COMMON | description).items())
    capability = f"  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {limits.features} }}"
    dnn = " ".join(f"{part}: {number}" for part, number in zip(("major", "minor", "patch"), DNN, strict=True))
    return (
        f"gpu_device_info {{\n{fields}\n{capability}\n}}\n"
        f'platform_name: "CUDA"\ndnn_version_info {{ {dnn} }}\ndevice_description_str: "{limits.name}"\n'
    )
