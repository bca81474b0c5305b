"""Processes that run the same program: joining them, printing once, and checking that they agree.

With one process, none of this does anything. `mesh.py` places arrays over the devices of all processes.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax._src import distributed  # JAX has no public way to its key-value store; Orbax takes this one too

from simcse_jax.devices import backend
from simcse_jax.errors import UserError, reason

WAIT_SECONDS = 600  # for a message of another process
START_SECONDS = 300  # for all processes to start
END_SECONDS = 60  # for all processes to end, after the first one has
_calls = itertools.count()


def initialize(count: int, number: int = 0, coordinator: str = "") -> None:
    """Joins the other processes; call it before anything else uses a device. Once they are joined, it does nothing.

    Args:
      count: of all processes; 0: as the environment says, which then says the rest too.
      number: this one's.
      coordinator: HOST:PORT of the first.

    Raises:
      UserError: when neither the arguments nor the environment say where the others are, or JAX cannot compute here.
      RuntimeError: JAX's own, when a process does not start in time. It is not the user's mistake; start again.
    """
    if count != 1 and not jax.distributed.is_initialized():
        _join(count, number, coordinator)
    backend.start()


def _join(count: int, number: int, coordinator: str) -> None:
    place: dict[str, Any] = {}
    if count:
        place = {"num_processes": count, "process_id": number, "coordinator_address": coordinator}
    try:
        jax.distributed.initialize(**place, initialization_timeout=START_SECONDS, shutdown_timeout_seconds=END_SECONDS)
    except (ValueError, TypeError) as error:
        how = "set parallel.processes, .process_id and .coordinator, or parallel.processes=1 for this process alone"
        raise UserError(f"config.parallel.processes={count}: {reason(error)}" + ("" if place else f"; {how}")) from None


def is_first() -> bool:
    """Whether this is the process that writes files and prints."""
    return jax.process_index() == 0


def say(text: str) -> None:
    """Prints a line, once for all processes."""
    if is_first():
        print(text, flush=True)


def gather(text: str) -> list[str]:
    """The texts of all processes, in their order; all must call it."""
    if jax.process_count() == 1:
        return [text]
    # This uses the service through which the processes found each other. No device takes part, so nothing that runs
    # on devices can block it, and the wait has a limit.
    client, call = distributed.global_state.client, next(_calls)
    assert client is not None
    client.key_value_set(f"simcse_jax/{call}/{jax.process_index()}", "=" + text)  # a value may not be empty
    keys = [f"simcse_jax/{call}/{process}" for process in range(jax.process_count())]
    return [client.blocking_key_value_get(key, 1000 * WAIT_SECONDS).removeprefix("=") for key in keys]


@contextlib.contextmanager
def exit_together() -> Iterator[None]:
    """All processes leave the block together: a user's mistake in one process ends them all.

    Otherwise the others would wait for the process that has left.
    """
    error = None
    try:
        yield
    except UserError as own:
        error = own
    for process, message in enumerate(gather(str(error) if error else "")):
        if message:
            raise error or UserError(f"process {process}: {message}")


def agree(facts: Mapping[str, str]) -> None:
    """Checks that all processes run the same thing on the same data."""
    for name, fact in facts.items():
        everywhere = gather(fact)
        for process, other in enumerate(everywhere):
            if other != everywhere[0]:
                raise UserError(f"{name}: differs between process {process} and process 0; all must have the same")
