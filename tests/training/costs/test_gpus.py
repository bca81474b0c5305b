import re

import pytest

from simcse_jax.errors import UserError
from simcse_jax.training.costs.gpus import LIMITS, is_gpu, nodes_and_gpus, target
from simcse_jax.training.costs.roofline import CHIPS


def test_a_topology_is_a_number_of_gpus_or_nodes_and_gpus_and_other_shapes_are_refused():
    assert nodes_and_gpus("h200:1") == (1, 1) and nodes_and_gpus("h200:2x8") == (2, 8)
    assert is_gpu("b200:8") and not is_gpu("v5e:2x4") and not is_gpu("h20:8")
    for shape in ("", "0", "9", "2x9", "x8", "8x", "1x1x8", "-1", "1.0", "1_0", "\u0663", "8193x8", "9" * 99):
        with pytest.raises(UserError, match=f"--topology h200:{shape}: must be a number of GPUs"):
            nodes_and_gpus(f"h200:{shape}")


def test_what_the_compiler_is_given_agrees_with_the_roofline():
    for kind, limits in LIMITS.items():
        fields, chip = dict(re.findall(r"(\w+): (\S+)", target(kind))), CHIPS[kind]
        assert int(fields["device_memory_size"]) == chip.hbm and int(fields["memory_bandwidth"]) == chip.hbm_bandwidth
        assert target(kind).count("{") == target(kind).count("}")
        # All cores together multiply and add in float32 as fast as the data sheet says.
        peak = 2 * limits.cores * limits.fpus * limits.clock * 1e9
        assert peak == pytest.approx(chip.flops / chip.passes["HIGHEST"][2], rel=0.02)
