"""The costs of a step and of an encoding; of one that is too large for a device's memory, the size that fits."""

import sys

from simcse_jax.errors import UserError
from simcse_jax.models.config import EncoderConfig
from simcse_jax.runs.state import ModelSpec
from simcse_jax.training.costs import gpus
from simcse_jax.training.costs.compile import OutOfMemory, compile_encoding, compile_step, largest_chunk
from simcse_jax.training.costs.described import described_devices
from simcse_jax.training.costs.roofline import Report, describe
from simcse_jax.training.setup import AbstractStep


def step_costs(step: AbstractStep, topology: str, fill: float = 1.0) -> Report:
    """Compiles the step; see `compile_step`.

    Raises:
      UserError: when it is too large for a chip's memory; the message has the largest chunk size that fits.
    """
    try:
        return compile_step(step, topology, fill)
    except OutOfMemory as error:
        device = "GPU" if gpus.is_gpu(topology) else "chip"
        lacking = f"a {device} needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
        print(f"{topology}: out of memory: {lacking}", file=sys.stderr, flush=True)
        chunk = find_chunk(step, topology, error.available / error.needed, fill)
        advice = (
            f"it fits with --config.parallel.chunk_size={chunk}" if chunk else "no parallel.chunk_size makes it fit"
        )
        batch = step.data.batch_size
        raise UserError(f"{topology}, batch {batch}: out of memory: {lacking}; {advice}") from None


def encoding_costs(
    spec: ModelSpec, encoder: EncoderConfig, shape: tuple[int, int], dtype: str, topology: str, devices: int
) -> Report:
    """Compiles the encoding of a batch of sentences, (B, T) tokens, by so many devices; see `compile_encoding`.

    Raises:
      UserError: when it is too large for a device's memory; the message has the largest batch that fits.
    """

    def compile_batch(sentences: int) -> Report:
        return compile_encoding(spec, encoder, (sentences * devices, shape[1]), dtype, topology)

    def fits(sentences: int) -> bool:
        print(f"{topology}: trying --batch-per-chip={sentences}", file=sys.stderr, flush=True)
        try:
            print(describe(compile_batch(sentences)), flush=True)
        except OutOfMemory:
            return False
        return True

    sentences = shape[0] // devices
    try:
        return compile_batch(sentences)
    except OutOfMemory as error:
        lacking = f"needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
        largest = largest_chunk(fits, sentences, error.available / error.needed)
        advice = f"it fits with --batch-per-chip={largest}" if largest else "not even a single sentence fits"
        raise UserError(f"{topology}, {sentences} sentences a device: out of memory: {lacking}; {advice}") from None


def find_chunk(step: AbstractStep, topology: str, share: float, fill: float = 1.0) -> int:
    """Finds the largest chunk size that fits, 0 if none does, and prints the step's costs with it.

    Args:
      step, topology, fill: those that did not fit.
      share: a chip's memory as a share of the memory that the step needs.
    """

    def fits(chunk: int) -> bool:
        smaller = step._replace(recipe=step.recipe._replace(chunk_size=chunk))
        print(f"{topology}: trying --config.parallel.chunk_size={chunk}", file=sys.stderr, flush=True)
        try:
            print(describe(compile_step(smaller, topology, fill)), flush=True)
        except OutOfMemory:
            return False
        return True

    a_chip = step.data.batch_size // len(described_devices(topology))
    return largest_chunk(fits, min(step.recipe.chunk_size or a_chip, a_chip), share)
