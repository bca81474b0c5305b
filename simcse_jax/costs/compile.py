"""Compiles the training step of a config for a TPU topology that is only described, and reads its costs."""

import dataclasses
import functools
import os
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from ml_collections import config_dict

from simcse_jax.costs.program import Program, product_flops
from simcse_jax.costs.roofline import CHIPS, Report
from simcse_jax.devices.mesh import data_mesh, replicated, split_over_examples
from simcse_jax.errors import UserError, installed, reason
from simcse_jax.models import partial
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import HEADS
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.registry import needs
from simcse_jax.runs.state import convolutions_of, pretrained_shapes, split_shapes, with_parts
from simcse_jax.training.recipe import make_recipe, make_replacement, make_settings
from simcse_jax.training.step import init_state, make_step
from simcse_jax.training.token_losses import LanguageModel

EXAMPLES = "v5e:2x4, v6e:4x4, v5p:2x2x2"
# No chip is used: several processes may compile at a time, and libtpu need not look for a TPU of this machine, nor
# complain that there is none.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


class OutOfMemory(Exception):
    """The step does not fit into a chip's memory; sizes in bytes."""

    def __init__(self, needed: float, available: float):
        self.needed, self.available = needed, available


def prepare() -> None:
    """Lets libtpu compile without a TPU; call it before JAX uses a device."""
    jax.config.update("jax_platforms", "cpu")  # otherwise JAX would look for a TPU here
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def described_devices(topology: str) -> list[jax.Device]:
    """The chips of a topology such as v5e:2x4; none is needed here.

    Raises:
      UserError: when libtpu is missing or there is no such topology.
    """
    generation = topology.partition(":")[0]
    if generation not in CHIPS:
        raise UserError(f"--topology {topology}: must be one of {', '.join(CHIPS)} and a shape, e.g. {EXAMPLES}")
    if not installed("libtpu"):
        raise UserError(
            "libtpu is missing: run `pip install libtpu`, best in an environment of its own, since "
            "with it other JAX programs look for a TPU unless JAX_PLATFORMS=cpu is set"
        )
    # Without this option a v4 chip counts as two devices; since v5p a chip is always one.
    options = {"chip_config_name": "megacore"} if generation == "v4" else {}
    try:
        return list(topologies.get_topology_desc(topology, "tpu", **options).devices)
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"--topology {topology}: {reason(error)}; examples are {EXAMPLES}") from None


def trace_step(
    config: config_dict.ConfigDict,
    encoder: EncoderConfig,
    columns: int,
    devices: list[jax.Device],
    generator: EncoderConfig | None = None,
) -> jax.stages.Traced:
    """Traces the training step as a run of `config` compiles it, from shapes alone.

    `generator` is the shape of config.model.generator, where an objective needs it.
    """
    mesh = data_mesh(devices)
    encoder = dataclasses.replace(encoder, convolutions=convolutions_of(config.model))
    shapes, rest = split_shapes(encoder, config)
    graph, _ = build(with_parts(encoder, config.model), HEADS[config.model.mlp].trained, jnp.dtype(config.train.dtype))
    settings = make_settings(config, total_steps=1)
    batch = _batch_shapes(config, columns)
    masking = LanguageModel(mask_id=103, special_ids=(0, 100, 101, 102, 103))  # BERT's
    replacement, frozen = None, partial.in_step(rest)
    if generator is not None:
        replacement = make_replacement(config, encoder, generator, masking)
        frozen |= pretrained_shapes(generator)
    recipe = make_recipe(config, columns, masking, replacement)
    initialize = functools.partial(init_state, chosen=recipe.optimization)
    state = jax.eval_shape(initialize, shapes, settings)
    step = make_step(graph, recipe, mesh)
    everywhere = replicated(mesh)
    return step.trace(
        _placed(state, everywhere),
        _placed(batch, split_over_examples(mesh)),
        _placed(settings, everywhere),
        _placed(frozen or None, everywhere),
    )


def _batch_shapes(config: config_dict.ConfigDict, columns: int) -> dict[str, jax.ShapeDtypeStruct]:
    tokens = jax.ShapeDtypeStruct((config.train.batch_size, columns, config.data.max_length), jnp.int32)
    one_a_row = jax.ShapeDtypeStruct((config.train.batch_size,), jnp.int32)
    batch = {"input_ids": tokens, "attention_mask": tokens, "index": one_a_row}
    if needs(config.objective).labels:
        batch["label"] = one_a_row
    if config.data.mixed and columns > 1:
        batch["present"] = jax.ShapeDtypeStruct((config.train.batch_size, columns), bool)
    return batch


def _placed(tree: Any, sharding: jax.sharding.Sharding) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def compile_step(
    config: config_dict.ConfigDict,
    encoder: EncoderConfig,
    columns: int,
    topology: str,
    generator: EncoderConfig | None = None,
) -> Report:
    """Compiles the step for a topology and reads its costs; see `trace_step`.

    Raises:
      OutOfMemory: when it does not fit.
    """
    devices = described_devices(topology)
    started = time.perf_counter()
    traced = trace_step(config, encoder, columns, devices, generator)
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if (needed_and_available := memory_of_error(str(error))) is None:
            raise
        raise OutOfMemory(*needed_and_available) from None
    memory, program = compiled.memory_analysis(), Program(compiled.as_text())
    return Report(
        topology=topology,
        chips=len(devices),
        batch=config.train.batch_size,
        sentences=config.train.batch_size * columns,
        compile_seconds=time.perf_counter() - started,
        memory={
            "arguments": memory.argument_size_in_bytes,
            "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
            "temporaries": memory.temp_size_in_bytes,
            "program": memory.generated_code_size_in_bytes,
        },
        passes=dict(product_flops(traced.jaxpr)),
        hbm_bytes=program.bytes_accessed(),
        collectives=program.collectives(),
    )


def memory_of_error(message: str) -> tuple[float, float] | None:
    """The bytes needed and available, from a message such as `… HBM …: required (55.33G) exceeds available (15.75G)`.

    None if the compiler failed for another reason than HBM.
    """
    sizes = re.findall(r"\b(\d+(?:\.\d+)?)([KMGT])\b", message)
    if "RESOURCE_EXHAUSTED" not in message or "hbm" not in message.lower() or len(sizes) < 2:
        return None
    needed, available = (float(size) * 2 ** (10 * (1 + "KMGT".index(unit))) for size, unit in sizes[:2])
    return needed, available


def largest_chunk(fits: Callable[[int], bool], whole: int, share: float) -> int:
    """The largest of whole/2, whole/4, … that fits, 0 if none does.

    Args:
      fits: tries one size, which takes a minute or two unless it is far too large.
      whole: the size that was too large.
      share: the available share of the memory needed. The search starts just above this share of `whole`.
    """
    chunk = whole // 2
    while chunk // 2 >= whole * share:
        chunk //= 2
    while chunk and not fits(chunk):
        chunk //= 2
    return chunk
