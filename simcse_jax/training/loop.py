"""The loop over steps, of one run and of several that are trained together."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tqdm import tqdm

from simcse_jax.devices import processes
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted, UserError
from simcse_jax.runs.state import TrainState
from simcse_jax.training.loss import Batch
from simcse_jax.training.schedule import Due, Schedule


class Trainee(Protocol):
    """What the loop trains: it computes steps, and does what is due between them."""

    def read(self, step: int) -> Batch:
        """The batch of update `step`, counted from 0, on its devices."""
        ...

    def compile(self, step: int, state: TrainState, batch: Batch) -> None:
        """Compiles what the first update needs."""
        ...

    def update(self, step: int, state: TrainState, batch: Batch) -> TrainState:
        """Dispatches update `step`, counted from 0."""
        ...

    def log(self, number: int) -> dict[str, str]:
        """Writes the metrics of the step with this number; what the progress bar shows of them."""
        ...

    def look(self, number: int, state: TrainState, due: Due, preempted: bool) -> None:
        """Measures, scores and saves what is due; where it is `preempted`, it saves in any case, and waits for that."""
        ...


def train(trainee: Trainee, schedule: Schedule, state: TrainState, preemption: Preemption) -> TrainState:
    """All updates that are left. Before the first one the start is looked at.

    Raises:
      UserError: naming the step that went wrong.
      Preempted: after saving, when the machine is about to be taken away.
    """
    first, total = int(state.step), schedule.total
    if first >= total:
        return state
    batch = trainee.read(first)
    trainee.compile(first, state, batch)
    if first == 0:
        trainee.look(0, state, schedule.due(0), False)
    shown = processes.is_first()
    with tqdm(total=total, initial=first, unit="step", dynamic_ncols=True, disable=not shown) as bar:
        for number in range(first + 1, total + 1):
            state = trainee.update(number - 1, state, batch)
            if number < total:
                batch = trainee.read(number)
            due = schedule.due(number)
            if due.log:
                bar.set_postfix(trainee.log(number))
            preempted = preemption.reached(number) and number < total
            if due.pause or preempted:
                trainee.look(number, state, due, preempted)
            if preempted:
                raise Preempted(f"SIGTERM: saved at step {number}; the same command goes on from there")
            bar.update()
    return state


@contextlib.contextmanager
def closing_all(things: Sequence[Any]) -> Iterator[None]:
    """Closes all of them after the block; an error inside the block takes precedence over errors while closing."""
    try:
        yield
    except BaseException:
        for thing in things:
            with contextlib.suppress(UserError):
                thing.close()
        raise
    for thing in things:
        thing.close()
