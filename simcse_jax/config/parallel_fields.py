"""The fields of devices and processes, and how processes find each other."""

from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError
from simcse_jax.field import at_least, field, one_of

GATHERED = ("step", BY_LAYER := "layer")  # see training/gathering.py

PARALLEL_FIELDS = {
    "parallel.devices": field(0, "The number of devices of each process; 0: all.", at_least(0)),
    "parallel.chunk_size": field(
        0, "Examples encoded at a time on each device: less memory for more time; 0: all.", at_least(0)
    ),
    "parallel.parts": field(
        0,
        "The number of devices that share a copy of the parameters and of the optimizer's state; 0: all.",
        at_least(0),
    ),
    "parallel.gather": field(
        "step",
        "Parameters are whole on each device for a step (step), or those of a layer while it computes (layer): less "
        "memory, and each layer is computed again in the backward pass.",
        one_of(GATHERED),
    ),
    "parallel.processes": field(
        1,
        "1: this process alone; 0: as Slurm, Open MPI, Kubernetes or the TPU reports; n: set the two fields below.",
        at_least(0),
    ),
    "parallel.process_id": field(
        0,
        "The number of this process, from 0 to n - 1.",
        at_least(0),
        only=lambda config: config.parallel.processes > 1,
    ),
    "parallel.coordinator": field("", "The HOST:PORT of process 0."),
}


def check_processes(config: Config) -> None:
    """Checks that each of several processes knows its number, and where the first one is.

    Raises:
      UserError: naming the field.
    """
    parallel = config.parallel
    if parallel.processes <= 1:
        return
    if parallel.process_id >= parallel.processes:
        raise UserError(f"config.parallel.process_id={parallel.process_id!r}: must be below {parallel.processes}")
    _, colon, port = parallel.coordinator.rpartition(":")
    if not (colon and port.isdigit()):
        raise UserError(f"config.parallel.coordinator={parallel.coordinator!r}: must be HOST:PORT of process 0")
