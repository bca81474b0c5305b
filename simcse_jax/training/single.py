"""One run in the loop: its steps, its metrics, its checkpoints."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from simcse_jax.data.corpora import AnyBatches
from simcse_jax.devices import processes
from simcse_jax.devices.parts import whole
from simcse_jax.encoding.embedder import Embedder, NotFinite
from simcse_jax.encoding.tokens import TokenEncoder
from simcse_jax.errors import UserError
from simcse_jax.evaluation.evaluator import evaluate_all
from simcse_jax.host import progress
from simcse_jax.host.locks import Check, never_lost
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.state import TrainState
from simcse_jax.training.loss import Batch, Settings
from simcse_jax.training.patience import Patience
from simcse_jax.training.programs import Updates
from simcse_jax.training.schedule import Due
from simcse_jax.training.setup import Setup
from simcse_jax.training.speed import Speed
from simcse_jax.training.step import METRICS

Update = Callable[[int, TrainState, Batch, Settings], tuple[TrainState, dict[str, jax.Array]]]


CHECKED = ("loss", "gradient_norm")  # of each step; all metrics of a log line's
POLL = 2e-4  # seconds between two looks at a batch that is not read yet


@dataclasses.dataclass
class SingleRun:
    """A run, and the results since its last log line."""

    setup: Setup
    batches: AnyBatches
    updates: Updates
    settings: Settings
    checkpoints: Checkpoints
    metrics: Metrics | None  # in the first process alone
    traced_update: Update | None = None  # `updates` with a trace of some calls
    check: Check = never_lost  # raises if the workdir's lock was lost
    callbacks: Sequence[Callable[[int, Mapping[str, float]], object]] = ()  # get the step and the scores
    ahead: int = 1  # how many updates are compiled before the first one
    patience: Patience = dataclasses.field(default_factory=lambda: Patience(0))  # its scores are the first process's
    ended: bool = False  # by patience
    pending: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)  # still on the device
    speed: Speed = dataclasses.field(default_factory=Speed)  # since the last log line
    last_loss: float | None = None  # of the step that was fetched last
    tokens: int = 0  # of the batch that was read last; counted in the process that writes the metrics

    def read(self, step: int) -> Batch:
        """The batch of an update; each process reads its own rows.

        Where the devices have finished all steps before it is there, they wait for data.
        """
        while self.batches.is_reading(step) and not self.is_idle:
            time.sleep(POLL)
        started = time.perf_counter()
        if self.metrics is not None:
            self.tokens = self.batches.tokens(step)  # before a thread goes on with the next batch
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
        for each in range(step, min(step + self.ahead, self.setup.schedule.total)):
            own = batch if each == step else self.setup.read(self.batches, each)  # its shape may be another
            self.updates.compile(each, state, own, self.settings)
        self.speed = Speed()

    def update(self, step: int, state: TrainState, batch: Batch) -> TrainState:
        """Dispatches an update; its metrics stay on the device until they are needed."""
        if seconds := self.updates.compile(step, state, batch, self.settings):
            self.speed.skip(seconds)
        state, values = (self.traced_update or self.updates)(step, state, batch, self.settings)
        self.pending.append((step + 1, values))
        sentences = self.batches.batch_size * batch["input_ids"].shape[1]
        self.speed.add(sentences, self.tokens, self.updates.at_peak(step))
        return state

    @property
    def loss(self) -> jax.Array:
        """That of the update dispatched last, still being computed."""
        return self.pending[-1][1]["loss"]

    def log(self, number: int) -> None:
        """Writes the last step's metrics, and the speed of the steps since the last line."""
        self.log_line(number, self.fetch())

    def log_line(self, number: int, line: dict[str, float]) -> None:
        """Writes these metrics of the last step, and the speed of the steps since the last line."""
        self.write(number, line | self.speed.line())
        self.speed = Speed()  # the time of writing is not the steps'

    def look(self, number: int, state: TrainState, due: Due, preempted: bool = False) -> None:
        """Measures, scores and saves as is due. The last step is logged and measured in any case.

        The start, if it is saved, is measured and scored before: a run that resumes there has its lines.

        Of two encoders, the one with the better score is measured; at steps without a score the first one.
        """
        if number == 0 and self.checkpoints.latest == 0:
            return
        line = self.fetch()  # counts as the steps' time
        started = time.perf_counter()
        encodes = due.measure or due.score or (due.save and not preempted)  # otherwise there is no time to gather
        trained = whole(state.params, self.setup.mesh) if encodes else state.params
        models = [
            CheckedEmbed(self.setup.embed.with_params(params), lambda reason: self.stop(number, reason))
            for params in (self.setup.model(trained, tower) for tower in self.setup.towers)
        ]
        score, tower = None, 0
        each = [evaluate_all(model, self.setup.scoring) for model in models if due.score and self.setup.scoring]
        if each:
            tower = max(range(len(each)), key=lambda tower: next(iter(each[tower].values())))  # a tie is the anchors'
        embed = models[tower]
        which = {"second_encoder": tower} if models[1:] else {}
        for evaluator in self.setup.measuring if due.measure else []:
            self.write(number, evaluator(embed) | which)
        if each:
            numbers = each[tower]
            name, score = next(iter(numbers.items()))
            self.patience.add(number, score)
            self.write(number, numbers | self.patience.line | which)
            if processes.is_first():
                progress.write(f"step {number}: {name} {score:.2f}{self._loss(', ')}")
            self.decide()
        elif number and number == self.setup.schedule.total and processes.is_first():
            progress.write(f"step {number}{self._loss(': ')}")
        if self.ended:
            self.speed.skip(time.perf_counter() - started)
            started = time.perf_counter()
            if self.speed.steps:
                self.log_line(number, line)
            for evaluator in self.setup.measuring if not due.measure else []:
                self.write(number, evaluator(embed) | which)
        if due.save and number and score is None and not preempted:  # then there is no time to compile
            embed(["Are these parameters fit to be saved?"])
        if due.save or preempted:
            self.save(state, score, tower)
        if preempted:
            self.checkpoints.close()
        for callback in self.callbacks if each else ():
            callback(number, each[tower])
        self.speed.skip(time.perf_counter() - started)

    def _loss(self, before: str) -> str:
        """The last step's loss for people, after `before`; "" at the start."""
        return "" if self.last_loss is None else f"{before}loss {self.last_loss:.4f}"

    def decide(self) -> None:
        """Ends the run if its patience is over. All processes do what the first one does: its scores are written."""
        if not self.patience.evaluations:
            return
        reason = str(self.patience) if self.patience.is_over else ""
        reason, *_ = processes.gather(reason)
        self.ended = bool(reason)
        if reason and processes.is_first():
            progress.write(reason)

    def wait(self) -> None:
        """Waits until everything is saved."""
        self.checkpoints.wait()

    def fetch(self) -> dict[str, float]:
        """Waits for the dispatched steps and returns the last one's metrics.

        Raises:
          UserError: naming the first step whose loss or gradient is not finite. Nothing was saved after it.
        """
        line = {}
        for number, values in self.pending:
            names = METRICS if number == self.pending[-1][0] else CHECKED  # each transfer takes its time
            line = {name: np.asarray(values[name]).item() for name in names}  # half of float()'s time
            if not all(map(math.isfinite, line.values())):
                self.stop(number, f"the loss is {line['loss']}, the gradient's norm {line['gradient_norm']}")
        self.pending = []
        self.last_loss = line.get("loss", self.last_loss)
        return line

    def stop(self, number: int, reason: str) -> NoReturn:
        """Ends the run at a step that went wrong; the last good checkpoint stays."""
        self.checkpoints.close()  # a save may be running
        if not number:
            raise UserError(f"step 0: {reason}; config.model.init_from must be another model")
        saved = self.checkpoints.latest
        left = "no checkpoint was saved yet" if saved is None else f"the last good checkpoint is that of step {saved}"
        raise UserError(
            f"step {number}: {reason}; {left}. "
            "Start again in another workdir with a lower train.learning_rate or a higher temperature"
        )

    def write(self, number: int, values: dict[str, Any]) -> None:
        """Adds a line to the metrics."""
        if self.metrics is not None:
            self.metrics.write(number, values)

    def save(self, state: TrainState, score: float | None, tower: int = 0) -> None:
        """Saves the metrics, then the checkpoint that they belong to; the encoder `tower` has the score."""
        with processes.together():
            self.check()
            if self.metrics is not None:
                self.metrics.flush()
        self.checkpoints.save(state, score, tower)


@dataclasses.dataclass(frozen=True)
class CheckedEmbed:
    """Encodes, and stops the run on non-finite embeddings: the loss misses the parameters after the last update."""

    embedder: Embedder
    stop: Callable[[str], NoReturn]

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """(N, D) embeddings of N sentences."""
        try:
            return self.embedder.with_progress(sentences, processes.is_first())
        except NotFinite as error:
            self.stop(str(error))

    @property
    def tokens(self) -> TokenEncoder:
        """The token embeddings of the last layer."""
        return dataclasses.replace(self.embedder.tokens, last_only=True)
