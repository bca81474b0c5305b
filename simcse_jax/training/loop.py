"""The loop over steps, for one run or for several that are trained together."""

import collections
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from simcse_jax.devices import processes
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import UserError
from simcse_jax.host.progress import Progress
from simcse_jax.runs.state import TrainState
from simcse_jax.training.loss import Batch
from simcse_jax.training.schedule import Due, Schedule


class Trainee(Protocol):
    """A run or several: it computes steps, and does what is due between them."""

    @property
    def loss(self) -> jax.Array:
        """That of the update dispatched last, of one run or (R,) of R runs; still being computed."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it does no further step, although some are left."""
        ...

    def read(self, step: int) -> Batch:
        """The batch of update `step`, counted from 0, as `update` takes it."""
        ...

    def compile(self, step: int, state: TrainState, batch: Batch) -> None:
        """Compiles what the first update needs."""
        ...

    def update(self, step: int, state: TrainState, batch: Batch) -> TrainState:
        """Dispatches update `step`, counted from 0."""
        ...

    def log(self, number: int) -> None:
        """Writes the metrics of the step with this number."""
        ...

    def look(self, number: int, state: TrainState, due: Due, preempted: bool) -> None:
        """Measures, scores and saves as is due; a run that is `preempted` saves in any case, and waits for the save."""
        ...

    def wait(self) -> None:
        """Waits until everything is saved."""
        ...


def train(trainee: Trainee, schedule: Schedule, state: TrainState, preemption: Preemption) -> TrainState:
    """Does all remaining updates, unless the trainee ends earlier. Before the first one, the start is scored.

    Raises:
      UserError: naming the step that went wrong, or a checkpoint that cannot be saved.
      Preempted, KeyboardInterrupt: after saving, for SIGTERM and Ctrl-C.
    """
    if int(state.step) < schedule.total and not trainee.ended:
        state = _remaining(trainee, schedule, state, preemption)
    trainee.wait()
    preemption.finish()
    return state


def _remaining(trainee: Trainee, schedule: Schedule, state: TrainState, preemption: Preemption) -> TrainState:
    first, total = int(state.step), schedule.total
    batch = trainee.read(first)
    trainee.compile(first, state, batch)
    if first == 0:
        trainee.look(0, state, schedule.due(0), False)
    shown = processes.is_first()
    with Progress(total, "steps", done=first, shown=shown) as bar:
        steps = Steps(bar, shown)
        for number in range(first + 1, total + 1):
            state = trainee.update(number - 1, state, batch)
            steps.dispatched(trainee.loss)
            if number < total:
                batch = trainee.read(number)
            due = schedule.due(number)
            if due.log:
                steps.wait()
                trainee.log(number)
            preempted = preemption.reached(number) and number < total
            if due.pause or preempted:
                steps.wait()
                started = time.monotonic()
                trainee.look(number, state, due, preempted)
                bar.skip(time.monotonic() - started)
            if preempted:
                raise preemption.ended(number)
            if trainee.ended:
                break
    return state


class Steps:
    """Shows the steps that the devices have finished; the host dispatches others ahead of them.

    Asking whether a step has finished does not wait for it. A loss is fetched when the bar or a line is about to show
    it, from a step that has finished.
    """

    def __init__(self, bar: Progress, shown: bool):
        """Counts on `bar`, if it is `shown`."""
        self._bar, self._shown = bar, shown
        self._running: collections.deque[Any] = collections.deque()  # the losses of steps, on the devices

    def dispatched(self, loss: jax.Array) -> None:
        """Adds a step by its loss, and counts the steps that have finished."""
        if self._shown:
            self._running.append(loss)
            while self._running and self._running[0].is_ready():
                self._count()

    def wait(self) -> None:
        """Waits for all steps, and counts each as it finishes."""
        while self._running:
            jax.block_until_ready(self._running[0])
            self._count()

    def _count(self) -> None:
        loss = self._running.popleft()
        self._bar.advance(1, lambda: describe(np.asarray(loss)))


def describe(loss: np.ndarray) -> str:
    """The loss for people; the mean over the runs that are trained together, without those that were given up."""
    finite = loss[np.isfinite(loss)]
    return f"loss {finite.mean():.4f}" if finite.size else f"loss {loss.flat[0]}"


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
