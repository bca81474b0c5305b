"""Compiles a config's training step, or its encoding, for a topology that is only described, and reads its costs."""

import dataclasses
import functools
import math
import os
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from simcse_jax.devices.flops import product_flops
from simcse_jax.devices.mesh import data_mesh, replicated_sharding, split_over_examples
from simcse_jax.devices.parts import shardings
from simcse_jax.encoding.embedder import make_embed
from simcse_jax.models import partial
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.platforms import tracing_for
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.state import ModelSpec, add_parts, initial_kept, pretrained_shapes, split_shapes
from simcse_jax.training.costs.described import HERE, described_devices
from simcse_jax.training.costs.gpus import is_gpu, nodes_and_gpus
from simcse_jax.training.costs.program import Program
from simcse_jax.training.costs.roofline import CHIPS, Report
from simcse_jax.training.data_spec import DataSpec
from simcse_jax.training.gathering import cast_to_product_dtype, frozen_shardings
from simcse_jax.training.setup import AbstractStep
from simcse_jax.training.step import init_state, make_step


class OutOfMemory(Exception):
    """The step does not fit into a chip's memory; sizes in bytes."""

    def __init__(self, needed: float, available: float):
        self.needed, self.available = needed, available


def trace_step(step: AbstractStep, devices: list[jax.Device], fill: float = 1.0) -> jax.stages.Traced:
    """Traces the training step as a run compiles it, from shapes alone.

    `fill` is the share of the places for tokens that a program without padding has.
    """
    mesh, spec, recipe = data_mesh(devices, step.parts), step.spec, step.recipe
    encoder = add_parts(step.encoder, spec)
    graph, _ = build(encoder, spec.head.trained, step.dtype)
    shapes, rest = split_shapes(step.encoder, spec)
    batch = batch_shapes(step.data, step.columns, encoder.sentence_size)
    frozen = partial.in_step(rest) | (pretrained_shapes(step.generator) if step.generator else {})
    if fill < 1:
        most = most_tokens(step.data, step.columns, len(devices), fill, recipe.chunk_size)
        recipe = recipe._replace(most_tokens=most)
    initialize = functools.partial(init_state, chosen=recipe.optimization)
    kept = jax.eval_shape(functools.partial(initial_kept, spec, encoder), shapes)
    state = jax.eval_shape(initialize, shapes, step.numbers, kept=kept)
    if recipe.by_layer:
        frozen = jax.eval_shape(functools.partial(cast_to_product_dtype, dtype=step.dtype), frozen)
    return make_step(graph, recipe, mesh).trace(
        jax.tree.map(abstract_arrays, state, shardings(state, mesh)),
        abstract_arrays(batch, split_over_examples(mesh)),
        abstract_arrays(step.numbers, replicated_sharding(mesh)),
        jax.tree.map(abstract_arrays, frozen, frozen_shardings(frozen, mesh, recipe.by_layer)) or None,
    )


def trace_encoding(
    spec: ModelSpec, encoder: EncoderConfig, shape: tuple[int, int], dtype: str, devices: list[jax.Device]
) -> jax.stages.Traced:
    """Traces the function that an `Embedder` compiles for a batch, from shapes alone.

    It is that of a run's evaluation: in bfloat16 it rounds the weights with each batch, where `SimCSE` has copies.
    """
    use_head = spec.head.scored
    encoder = dataclasses.replace(encoder, attention_kernels=spec.attention_kernels, mask_token_id=103)  # BERT's
    graph, shapes = build(encoder, use_head, jnp.dtype(dtype))
    mesh = data_mesh(devices)
    rows = split_over_examples(mesh)
    tokens = abstract_arrays(jax.ShapeDtypeStruct(shape, jnp.int32), rows)
    embed = make_embed(graph, spec.scored_pooler, use_head, rows if len(devices) > 1 else None, encoder.modules)
    return embed.trace(abstract_arrays(dict(shapes), replicated_sharding(mesh)), tokens, tokens)


def most_tokens(data: DataSpec, columns: int, devices: int, fill: float, chunk_size: int) -> tuple[int, ...]:
    """The places for tokens of each column, in the program without padding; see `recipe.Recipe.most_tokens`."""
    share = data.batch_size // devices
    together = min(chunk_size or share, share)
    lengths = data.column_lengths(columns) or (data.longest[1],) * columns
    return tuple(math.ceil(fill * together * length) for length in lengths)


def batch_shapes(data: DataSpec, columns: int, teacher_size: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The arrays of a batch, by name; a teacher's embeddings have `teacher_size` elements."""
    rows, of_row = (data.batch_size,), (data.batch_size, columns)
    length = max(data.column_lengths(columns) or (data.longest[1],))
    tokens = jax.ShapeDtypeStruct((*of_row, length), jnp.int32)
    one_a_row = jax.ShapeDtypeStruct(rows, jnp.int32)
    batch = {"input_ids": tokens, "attention_mask": tokens, "index": one_a_row}
    if data.labels:
        batch["label"] = one_a_row
    if data.scores:
        of_score = (data.batch_size, columns - 1) if data.scores.of_candidates else rows
        batch["score"] = jax.ShapeDtypeStruct(of_score, jnp.float32)
    if data.teacher:
        batch["teacher"] = jax.ShapeDtypeStruct((*of_row, teacher_size), jnp.float32)
    if data.mixed and not data.one_source and columns > 1:
        batch["present"] = jax.ShapeDtypeStruct(of_row, bool)
    if data.leaves_equal_out(columns):
        batch["text"] = jax.ShapeDtypeStruct(of_row, jnp.int32)
    return batch


def abstract_arrays(tree: Any, sharding: jax.sharding.Sharding) -> Any:
    """Abstract arrays, on the devices of `sharding`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def compile_step(step: AbstractStep, topology: str, fill: float = 1.0) -> Report:
    """Compiles the step for a topology and reads its costs; see `trace_step`."""
    trace = functools.partial(trace_step, step, fill=fill)
    return compile_for(topology, trace, step.data.batch_size, step.data.batch_size * step.columns)


def compile_encoding(
    spec: ModelSpec, encoder: EncoderConfig, shape: tuple[int, int], dtype: str, topology: str
) -> Report:
    """Compiles the encoding of a batch of sentences by a model that a run trains; see `trace_encoding`."""
    trace = functools.partial(trace_encoding, spec, encoder, shape, dtype)
    return compile_for(topology, trace, shape[0], shape[0])


def compile_for(
    topology: str, trace: Callable[[list[jax.Device]], jax.stages.Traced], batch: int, sentences: int
) -> Report:
    """Compiles a program for a topology and reads its costs."""
    kind, _, shape = topology.partition(":")
    devices, chip = described_devices(topology), CHIPS[kind]
    most = gpu_memory(chip.hbm) if is_gpu(topology) else math.inf
    started = time.perf_counter()
    with tracing_for(devices[0].platform):  # as a run does
        traced = trace(devices)
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if (needed_and_available := memory_of_error(str(error))) is None:
            raise
        raise OutOfMemory(*needed_and_available) from None
    memory, program = compiled.memory_analysis(), Program(compiled.as_text())
    flops = product_flops(traced.jaxpr, chip.passes, "cuda" if is_gpu(topology) else "tpu")
    report = Report(
        topology=topology,
        chips=len(devices),
        batch=batch,
        sentences=sentences,
        compile_seconds=time.perf_counter() - started,
        memory={
            "arguments": memory.argument_size_in_bytes,
            "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
            "temporaries": memory.temp_size_in_bytes,
            "program": memory.generated_code_size_in_bytes,
        },
        passes=dict(flops),
        hbm_bytes=program.bytes_accessed(),
        collectives=program.collectives(),
        nodes=nodes_and_gpus(topology)[0] if is_gpu(topology) and shape != HERE else 1,
    )
    # The TPU compiler refuses what does not fit; that of GPUs leaves it to the run.
    if (needed := sum(report.memory.values())) > most:
        raise OutOfMemory(needed, most)
    return report


def gpu_memory(whole: float) -> float:
    """The bytes of a GPU's memory that JAX takes: three quarters, or the share in JAX's variable, new or old."""
    variables = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    return whole * float(next(filter(None, map(os.environ.get, variables)), 0.75))


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
