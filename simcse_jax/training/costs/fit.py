"""The costs of a step and of an encoding; of one that is too large for a device's memory, the size that fits."""

import sys
from collections.abc import Callable

from simcse_jax.errors import UserError
from simcse_jax.models.config import EncoderConfig
from simcse_jax.runs.state import ModelSpec
from simcse_jax.training.costs.compile import OutOfMemory, compile_encoding, compile_step, largest_chunk
from simcse_jax.training.costs.roofline import Report, describe
from simcse_jax.training.setup import AbstractStep


def step_costs(step: AbstractStep, topology: str, devices: int, fill: float = 1.0) -> Report:
    """Compiles the step for a topology of so many devices; see `compile_step`.

    Raises:
      UserError: when it is too large for a chip's memory; the message has the largest chunk size that fits.
    """

    def compile_chunks(chunk: int) -> Report:
        return compile_step(step._replace(recipe=step.recipe._replace(chunk_size=chunk)), topology, fill)

    share, chunk = step.data.batch_size // devices, step.recipe.chunk_size
    return _costs(topology, compile_chunks, chunk, min(chunk or share, share), "--config.parallel.chunk_size")


def encoding_costs(
    spec: ModelSpec, encoder: EncoderConfig, shape: tuple[int, int], dtype: str, topology: str, devices: int
) -> Report:
    """Compiles the encoding of a batch of sentences, (B, T) tokens, by so many devices; see `compile_encoding`.

    Raises:
      UserError: when it is too large for a device's memory; the message has the largest batch that fits.
    """

    def compile_batch(sentences: int) -> Report:
        return compile_encoding(spec, encoder, (sentences * devices, shape[1]), dtype, topology)

    sentences = shape[0] // devices
    return _costs(topology, compile_batch, sentences, sentences, "--batch-per-chip")


def _costs(topology: str, compile_size: Callable[[int], Report], size: int, rows: int, option: str) -> Report:
    """The costs with this `size`, which the option sets, for `rows` of a device; or the error with the size that fits.

    The costs of that size are printed.
    """

    def fits(smaller: int) -> bool:
        print(f"{topology}: trying {option}={smaller}", file=sys.stderr, flush=True)
        try:
            print(describe(compile_size(smaller)), flush=True)
        except OutOfMemory:
            return False
        return True

    try:
        return compile_size(size)
    except OutOfMemory as error:
        lacking = f"out of memory: a device needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
        print(f"{topology}: {lacking}", file=sys.stderr, flush=True)
        largest = largest_chunk(fits, rows, error.available / error.needed)
        advice = f"it fits with {option}={largest}" if largest else f"no {option} makes it fit"
        raise UserError(f"{topology}, {rows} a device: {lacking}; {advice}") from None
