"""Seconds to compile a training step against the number of layers; nothing is run.

    python -m benchmarks.compile_time [--layers 1 6 12] [--platform cpu]
    python -m benchmarks.compile_time --topology v5e:2x4      # for TPUs that are only described, with libtpu

Unsupervised SimCSE of --model, the first of its layers again and again, with 64 sentences of 32 tokens. Neither weights
nor data are read, and no compilation cache is used. Processor seconds are summed over all cores; on a shared machine
they say more than wall-clock time.
"""

import argparse
import dataclasses
import time
from typing import NamedTuple

import jax

from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from simcse_jax.commands.command_line import run_command
from simcse_jax.config.fields import default_config
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.training.costs.compile import trace_step
from simcse_jax.training.costs.described import described_devices, prepare
from simcse_jax.training.setup import abstract_step


class Seconds(NamedTuple):
    """The seconds that a step of so many layers took."""

    layers: int
    lowering: float  # tracing and lowering, by the clock
    compiling: float  # by the clock
    processor: float  # of compiling


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.compile_time", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MINILM, help="whose sizes: a folder, a hub id or package:NAME")
    parser.add_argument("--layers", type=int, least=1, nargs="+", default=[1, 6, 12], help="default: 1 6 12")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="default: float32")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--platform", help="of JAX, such as cpu or gpu; default: the one that JAX takes")
    where.add_argument("--topology", help="e.g. v5e:2x4: TPUs that need not be there")
    return parser.parse_args()


def measure(model: str, layers: int, dtype: str, devices: list[jax.Device]) -> Seconds:
    """Compiles the step of so many layers for these devices."""
    config = default_config()
    config.model.init_from, config.train.dtype = model, dtype
    encoder = dataclasses.replace(encoder_config(model), num_layers=layers)
    started = time.perf_counter()
    lowered = trace_step(abstract_step(config, encoder, 1), devices).lower()
    lowering = time.perf_counter() - started
    started, processor = time.perf_counter(), time.process_time()
    lowered.compile()
    return Seconds(layers, lowering, time.perf_counter() - started, time.process_time() - processor)


def main() -> None:
    """Prints a line as soon as it is known."""
    args = parse()
    jax.config.update("jax_enable_compilation_cache", False)
    if args.platform:
        jax.config.update("jax_platforms", args.platform)
    if args.topology:
        prepare()
    devices = described_devices(args.topology) if args.topology else jax.devices()[:1]
    print("| layers | trace and lower, s | compile, s | processor, s |\n| --- | --- | --- | --- |", flush=True)
    for layers in args.layers:
        found = measure(args.model, layers, args.dtype, devices)
        print(f"| {layers} | {found.lowering:.1f} | {found.compiling:.1f} | {found.processor:.1f} |", flush=True)


if __name__ == "__main__":
    run_command(main)
