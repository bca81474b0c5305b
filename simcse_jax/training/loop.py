"""The loop over the steps of a run, and what is due between the steps."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from simcse_jax.data.corpora import AnyBatches
from simcse_jax.devices import processes
from simcse_jax.devices.preemption import Preemption
from simcse_jax.encoding.embedder import NotFinite
from simcse_jax.errors import UserError
from simcse_jax.host import progress
from simcse_jax.host.progress import Progress
from simcse_jax.objectives.rows import Batch, StepSettings
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.state import TrainState
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training import examples
from simcse_jax.training.folds import CrossFitted
from simcse_jax.training.patience import Patience
from simcse_jax.training.programs import Updates
from simcse_jax.training.schedule import Due
from simcse_jax.training.scoring import ChosenTower, choose
from simcse_jax.training.setup import Setup
from simcse_jax.training.speed import Speed, Steps

CHECKED = ("loss", "gradient_norm")  # checked for every step; of a log line all metrics are
POLL = 2e-4  # seconds between two looks at a batch that is not read yet


@dataclasses.dataclass
class Training:
    """A run that is trained, and its results since the last log line."""

    setup: Setup
    folder: Workdir
    patience: Patience  # its scores are the first process's
    batches: AnyBatches
    updates: Updates
    settings: StepSettings
    checkpoints: Checkpoints
    traced_update: Callable[..., Any] | None = None  # `updates` with a trace of some calls
    metrics: Metrics | None = None  # in the first process alone
    ended: bool = False  # by patience, or since folds say that training does not help
    cross_fitted: CrossFitted | None = None  # what they say
    callbacks: Sequence[Callable[[int, Mapping[str, float]], object]] = ()  # get the step and the scores
    ahead: int = 1  # how many updates are compiled before the first one
    pending: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)  # still on the device
    speed: Speed = dataclasses.field(default_factory=Speed)  # since the last log line
    last: dict[str, float] = dataclasses.field(default_factory=dict)  # the line of the last step
    tokens: int = 0  # of the batch that was read last; counted in the process that writes the metrics

    def write(self, number: int, values: Mapping[str, Any]) -> None:
        """Adds a line to the metrics."""
        if self.metrics is not None:
            self.metrics.write(number, values)

    def say(self, text: str) -> None:
        """Prints a line above the progress bar, once for all processes."""
        if processes.is_first():
            progress.write(text)

    def left(self, step: int) -> int:
        """The steps after this one."""
        return 0 if self.ended else self.setup.schedule.total - step

    def train(self, state: TrainState, preemption: Preemption) -> TrainState:
        """Does all remaining updates, unless patience ends it earlier. Before the first one, the start is scored."""
        if self.left(int(state.step)):
            state = self._remaining(state, preemption)
        self.checkpoints.wait()
        preemption.finish()
        return state

    def _remaining(self, state: TrainState, preemption: Preemption) -> TrainState:
        first, schedule = int(state.step), self.setup.schedule
        batch = self.read(first)
        self.compile(first, state, batch)
        if first == 0:
            self.look(0, state, schedule.due(0))
        with Progress(schedule.total, "steps", done=first, shown=processes.is_first()) as bar:
            steps = Steps(bar)
            for number in range(first + 1, schedule.total + 1):
                if seconds := self.updates.compile(number - 1, state, batch, self.settings):
                    self.speed.skip(seconds)
                    bar.skip(seconds)
                state = self.update(number - 1, state, batch)
                steps.add(self.loss)
                if number < schedule.total:
                    batch = self.read(number)
                due = schedule.due(number)
                if due.log:
                    steps.wait()
                    self.log(number)
                preempted = preemption.reached(number) and number < schedule.total
                if due.pause or preempted:
                    steps.wait()
                    started = time.monotonic()
                    self.look(number, state, due, preempted)
                    bar.skip(time.monotonic() - started)
                if preempted:
                    raise preemption.ended(number)
                if self.ended:
                    break
        return state

    def read(self, step: int) -> Batch:
        """The batch of an update, counted from 0.

        Where the devices have finished all steps before it is there, they wait for data.
        """
        while self.batches.is_reading(step) and not self.is_idle:
            time.sleep(POLL)
        started = time.perf_counter()
        if processes.is_first():
            self.tokens = self.batches.tokens(step)  # before a thread reads the next batch
        batch = self.setup.read(self.batches, step)
        if self.is_idle:
            self.speed.wait(time.perf_counter() - started)
        return batch

    @property
    def is_idle(self) -> bool:
        """Whether this process's devices have finished the steps that were dispatched; it does not wait for them."""
        loss: Any = self.loss if self.pending else None  # JAX does not declare is_ready
        return loss is None or loss.is_ready()

    def compile(self, step: int, state: TrainState, batch: Batch) -> None:
        """Compiles the first updates."""
        for number in range(step, min(step + self.ahead, self.setup.schedule.total)):
            batch_of_step = (
                batch if number == step else self.setup.read(self.batches, number)
            )  # its shape may be another
            self.updates.compile(number, state, batch_of_step, self.settings)
        self.speed = Speed()

    def update(self, step: int, state: TrainState, batch: Batch) -> TrainState:
        """Dispatches an update, which is compiled; its metrics stay on the device until they are needed."""
        state, values = (self.traced_update or self.updates)(step, state, batch, self.settings)
        self.pending.append((step + 1, values))
        self.speed.add(math.prod(batch["input_ids"].shape[:-1]), self.tokens, self.updates.at_peak(step))
        return state

    @property
    def loss(self) -> jax.Array:
        """The loss of the latest update, which may still be running."""
        return self.pending[-1][1]["loss"]

    def log(self, number: int) -> None:
        """Writes the last step's metrics."""
        self.fetch()
        self.write(number, self.last)
        self.speed = Speed()  # the time of writing is not the steps'

    def fetch(self) -> None:
        """Waits for the dispatched steps. Their last line has the speed of the steps since the last log line, too."""
        for number, values in self.pending:
            names = tuple(values) if number == self.pending[-1][0] else CHECKED  # each transfer takes its time
            self.last = line = {name: np.asarray(values[name]).item() for name in names}  # half of float()'s time
            if not all(map(math.isfinite, line.values())):
                raise self.step_error(
                    number, f"the loss is {line['loss']}, the gradient's norm {line['gradient_norm']}"
                )
        if self.pending:
            self.last |= self.speed.line()
        self.pending = []

    def look(self, number: int, state: TrainState, due: Due, preempted: bool = False) -> None:
        """Measures, scores and saves as is due. The last step of a run is logged and measured in any case.

        The start, if it is saved, is measured and scored before: a run that resumes there has its lines.
        """
        if number == 0 and self.checkpoints.latest == 0:
            return
        self.fetch()  # counts as the steps' time
        started = time.perf_counter()
        result: tuple[dict[str, Any], int] = {}, 0
        encodes = due.measure or due.score or (due.save and not preempted)  # otherwise there is no time to gather
        if encodes and not self.ended:
            try:
                result = self.measure(number, state, due, preempted)
            except NotFinite as error:
                raise self.step_error(number, str(error)) from None
        if due.save or preempted:
            self.save(state, *result)
        if preempted:
            self.checkpoints.close()
        for callback in self.callbacks if result[0] else ():
            callback(number, result[0])
        self.speed.skip(time.perf_counter() - started)

    def measure(self, number: int, state: TrainState, due: Due, preempted: bool) -> tuple[dict[str, Any], int]:
        """Measures and scores the model; returns its scores and which encoder has them."""
        chosen = choose(self.setup, self.setup.gather_for_scoring(state.params), due.score)
        if due.measure:
            self._measure_layers(number, chosen)
        if not chosen.scores:
            if due.save and number and not preempted:  # then there is no time to compile
                chosen.model(["Are these parameters fit to be saved?"])
            if number and number == self.setup.schedule.total:
                self.say(f"step {number}{self._loss(': ')}")
            return {}, 0
        name, score = next(iter(chosen.scores.items()))
        if number == 0 and self.setup.shows_examples and self.setup.inputs.evaluation:
            examples.update(self.folder.path, examples.before(self.setup.inputs.evaluation.at_end, chosen.model))
        self.patience.add(number, score)
        self.write(number, chosen.scores | self.patience.line | chosen.which)
        self.say(f"step {number}: {name} {score:.2f}{self._loss(', ')}")
        self.decide()
        if self.ended:
            if self.speed.steps:  # it was not logged
                self.write(number, self.last)
            if not due.measure:
                self._measure_layers(number, chosen)
        return chosen.scores, chosen.tower

    def _measure_layers(self, number: int, chosen: ChosenTower) -> None:
        for evaluator in self.setup.measuring:
            self.write(number, evaluator(chosen.model) | chosen.which)

    def _loss(self, before: str) -> str:
        """The last step's loss as text, after `before`; "" at the start."""
        return f"{before}loss {self.last['loss']:.4f}" if self.last else ""

    def decide(self) -> None:
        """Ends the run if its patience is over. All processes do what the first one does: its scores are written."""
        if self.patience.evaluations:
            reason, *_ = processes.gather(str(self.patience) if self.patience.is_over else "")
            self.ended = bool(reason)
            if reason:
                self.say(reason)

    def step_error(self, number: int, reason: str) -> UserError:
        """The error of a step that went wrong; the last good checkpoint stays."""
        self.checkpoints.close()  # a save may be running
        if not number:
            return UserError(f"step 0: {reason}; config.model.init_from must be another model")
        saved = self.checkpoints.latest
        last_saved = (
            "no checkpoint was saved yet" if saved is None else f"the last good checkpoint is that of step {saved}"
        )
        return UserError(
            f"step {number}: {reason}; {last_saved}. "
            "Start again in another workdir with a lower train.learning_rate or a higher temperature"
        )

    def save(self, state: TrainState, scores: Mapping[str, Any], tower: int) -> None:
        """Saves the metrics, then the checkpoint that they belong to."""
        with processes.exit_together():
            if self.metrics is not None:
                self.metrics.flush()
        self.checkpoints.save(state, next(iter(scores.values()), None), tower)

    def restore(self, state: TrainState) -> tuple[TrainState, int | None]:
        """The newest saved state and its step; the given one and None if none was saved."""
        saved = self.checkpoints.resume(state)
        if saved is None:
            return state, None
        processes.say(f"resuming at step {int(saved.step)} of {self.setup.schedule.total}")
        return saved, int(saved.step)
