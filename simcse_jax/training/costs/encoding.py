"""Compiles the encoding of a batch for a topology that is only described, and reads its costs."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from simcse_jax.config.sections import Section
from simcse_jax.devices.mesh import data_mesh, replicated, split_over_examples
from simcse_jax.encoding.embedder import make_embed
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import HEADS
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.state import computed_as
from simcse_jax.training.costs.compile import compile_for, placed
from simcse_jax.training.costs.roofline import Report


def compile_encoding(config: Section, encoder: EncoderConfig, length: int, topology: str) -> Report:
    """Compiles the encoding of train.batch_size sentences by a model that `config` trains; see `trace_encoding`.

    Raises:
      OutOfMemory: when it does not fit.
    """
    trace = functools.partial(trace_encoding, config, encoder, length)
    return compile_for(topology, trace, config.train.batch_size, config.train.batch_size)


def trace_encoding(
    config: Section, encoder: EncoderConfig, length: int, devices: list[jax.Device]
) -> jax.stages.Traced:
    """Traces the function that an `Embedder` compiles for a batch, from shapes alone.

    It is that of a run's evaluation: in bfloat16 it rounds the weights with each batch, where `SimCSE` has copies.

    Args:
      config: its model, pooler, head, dtype and batch.
      encoder: the model's shape.
      length: of every sentence, in tokens, with padding.
      devices: those that share the batch.
    """
    use_head = HEADS[config.model.mlp].scored
    pooler = config.eval.pooler or config.model.pooler
    graph, shapes = build(computed_as(config.model, encoder), use_head, jnp.dtype(config.train.dtype))
    mesh: Mesh = data_mesh(devices)
    rows = split_over_examples(mesh)
    tokens = placed(jax.ShapeDtypeStruct((config.train.batch_size, length), jnp.int32), rows)
    embed = make_embed(graph, pooler, use_head, rows if len(devices) > 1 else None)
    return embed.trace(placed(dict(shapes), replicated(mesh)), tokens, tokens)
