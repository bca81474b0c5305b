"""The training loop."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax.sharding import NamedSharding
from ml_collections import config_dict
from tqdm import tqdm

from simcse_jax.data.batches import Batches
from simcse_jax.devices import processes
from simcse_jax.devices.mesh import place
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted, UserError
from simcse_jax.evaluation import sts
from simcse_jax.models.parameters import Params
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.metrics import Metrics
from simcse_jax.runs.state import TrainState
from simcse_jax.training.inputs import Evaluation
from simcse_jax.training.loss import Batch, Settings
from simcse_jax.training.profiling import LAST_TRACED, traced
from simcse_jax.training.programs import Updates
from simcse_jax.training.step import METRICS

Encode = Callable[[Params, Sequence[str]], np.ndarray]
Analyse = Callable[[sts.Encode, Params], dict[str, float]]


@contextlib.contextmanager
def closing_all(things: Sequence[Any]) -> Iterator[None]:
    """Closes them behind the block; what went wrong in it is told rather than what goes wrong in closing then."""
    try:
        yield
    except BaseException:
        for thing in things:
            with contextlib.suppress(UserError):
                thing.close()
        raise
    for thing in things:
        thing.close()


@dataclasses.dataclass
class Loop:
    """The training loop, and its book-keeping: what was measured since the last log line, when to do what beside."""

    config: config_dict.ConfigDict
    settings: Settings
    total_steps: int
    encode: Encode
    evaluation: Evaluation | None
    analyse: Analyse | None
    checkpoints: Checkpoints
    metrics: Metrics | None  # the first process's alone
    preemption: Preemption
    trace_folder: Path | None = None  # for a trace of a few steps; the first process's alone
    pending: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)  # still on the device

    def run(self, updates: Updates, batches: Batches, sharding: NamedSharding, state: TrainState) -> TrainState:
        """All updates that are left. Where there are none at all, what a run starts from is scored and saved."""
        first = int(state.step)
        if not self.total_steps and self.checkpoints.latest is None:
            self.measure_space(0, state.params)
            self.save(state, self.evaluate(0, state.params))
        if first >= self.total_steps:
            if self.trace_folder:
                processes.say(f"--profile {self.trace_folder}: no step is left that could be traced")
            return state

        def read(number: int) -> Batch:
            return place(functools.partial(batches.rows, number), batches.batch_size, sharding)

        batch = read(first)
        num_columns = batch["input_ids"].shape[1]
        for step in range(first, min(first + 1 + (LAST_TRACED if self.trace_folder else 0), self.total_steps)):
            updates.compile(step, state, batch, self.settings)  # not within a trace; all batches have one shape
        if first == 0:
            self.measure_space(0, state.params)
            self.evaluate(0, state.params)

        sentences = self.config.train.batch_size * num_columns
        bar = tqdm(
            total=self.total_steps, initial=first, unit="step", dynamic_ncols=True, disable=not processes.is_first()
        )
        with bar, traced(updates, self.trace_folder, self.total_steps - first) as update:
            clock, counted = time.perf_counter(), 0
            for number in range(first + 1, self.total_steps + 1):
                clock += updates.compile(number - 1, state, batch, self.settings)
                state, values = update(number - 1, state, batch, self.settings)
                if number < self.total_steps:
                    batch = read(number)
                self.pending.append((number, values))
                counted += sentences
                if number == 1 or number == self.total_steps or number % self.config.train.log_every == 0:
                    line = self.fetch()
                    line["seconds"] = time.perf_counter() - clock
                    line["sentences_per_second"] = counted / line["seconds"]
                    self.write(number, line)
                    bar.set_postfix(loss=f"{line['loss']:.4f}", sentences_per_s=f"{line['sentences_per_second']:.0f}")
                    clock, counted = time.perf_counter(), 0
                clock += self.beside(number, state)
                bar.update()
        return state

    def beside(self, number: int, state: TrainState) -> float:
        """Measures, scores and saves what is due behind a step; returns the seconds that this took.

        Raises:
          Preempted: behind the saving, when the machine is about to be taken away.
        """
        last = number == self.total_steps
        keep_every, analyse_every = self.config.checkpoint.keep_every, self.config.analysis.every
        preempted = self.preemption.reached(number) and not last
        measured = analyse_every and (last or number % analyse_every == 0)
        scored = last or number % self.config.eval.every == 0
        saved = scored or preempted or (keep_every and number % keep_every == 0)
        if not (measured or saved):
            return 0.0
        self.fetch()  # the steps' own time
        started = time.perf_counter()
        if measured:
            self.measure_space(number, state.params)
        if saved:
            score = self.evaluate(number, state.params) if scored else None
            if score is None and not preempted:  # there is no time to compile then
                self.checked_encode(number, state.params)(["Are these parameters fit to be saved?"])
            self.save(state, score)
        if preempted:
            self.checkpoints.close()
            raise Preempted(f"SIGTERM: saved at step {number}; the same command goes on from there")
        return time.perf_counter() - started

    def fetch(self) -> dict[str, float]:
        """Waits for the steps under way and returns the last one's metrics.

        Raises:
          UserError: naming the first step whose loss or gradient is not finite. Nothing was saved since.
        """
        line = {}
        for number, values in self.pending:
            line = {name: float(values[name]) for name in METRICS}
            if not all(map(math.isfinite, line.values())):
                self.stop(number, f"the loss is {line['loss']}, the gradient's norm {line['gradient_norm']}")
        self.pending = []
        return line

    def stop(self, number: int, reason: str) -> NoReturn:
        """Ends the run at a step that went wrong, leaving the last good checkpoint."""
        self.checkpoints.close()  # a save may be under way
        saved = self.checkpoints.latest
        left = "no checkpoint was saved yet" if saved is None else f"the last good checkpoint is of step {saved}"
        raise UserError(
            f"step {number}: {reason}; {left}. "
            "Start again in another workdir with a lower train.learning_rate or a higher temperature"
        )

    def checked_encode(self, number: int, params: Params) -> sts.Encode:
        """An encode that stops the run where embeddings are not finite: a loss only tells of the step before."""

        def encode(sentences: Sequence[str]) -> np.ndarray:
            embeddings = self.encode(params, sentences)
            if not np.all(np.isfinite(embeddings)):
                self.stop(number, "the embeddings are not finite")
            return embeddings

        return encode

    def evaluate(self, number: int, params: Params) -> float | None:
        """Scores the development pairs and writes the metrics' line."""
        if self.evaluation is None:
            return None
        results = sts.evaluate(self.checked_encode(number, params), self.evaluation.development)
        score = next(iter(results.values()))["spearman"]
        self.write(number, {self.evaluation.name: score})
        if processes.is_first():
            tqdm.write(f"step {number}: {self.evaluation.name} {score:.2f}")
        return score

    def measure_space(self, number: int, params: Params) -> None:
        """Measures the last layer, where that is asked for, and writes the metrics' line."""
        if self.analyse is not None:
            self.write(number, {"analysis": self.analyse(self.checked_encode(number, params), params)})

    def write(self, number: int, values: dict[str, Any]) -> None:
        """Adds a line to the metrics."""
        if self.metrics is not None:
            self.metrics.write(number, values)

    def save(self, state: TrainState, score: float | None) -> None:
        """Saves a checkpoint, behind the metrics that belong to it."""
        with processes.together():
            if self.metrics is not None:
                self.metrics.flush()
        self.checkpoints.save(state, score)
