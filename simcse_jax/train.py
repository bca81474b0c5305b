"""The run: build, loop, evaluate, keep the best."""

import contextlib
import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from ml_collections import config_dict
from tqdm import tqdm

from simcse_jax import parallel
from simcse_jax import step as step_lib
from simcse_jax import workdir as workdir_lib
from simcse_jax.analysis.last_layer import measure_last_layer
from simcse_jax.analysis.protocol import Protocol
from simcse_jax.analysis.tokens import survey
from simcse_jax.checkpoint import Checkpoints
from simcse_jax.config import ineffective, validate
from simcse_jax.data.batches import Batches
from simcse_jax.encoding import make_encode
from simcse_jax.errors import Preempted, UserError
from simcse_jax.evaluation import postprocess, sts, transfer
from simcse_jax.inputs import Evaluation, Inputs, read_inputs
from simcse_jax.models import huggingface
from simcse_jax.models.parameters import Params
from simcse_jax.preemption import Preemption
from simcse_jax.profiling import LAST_TRACED, traced
from simcse_jax.recipe import initial_params, make_recipe, make_settings
from simcse_jax.storage import Folder, as_path, output_folder, write_atomically
from simcse_jax.token_encoder import TokenEncoder
from simcse_jax.updates import Updates

Encode = Callable[[Params, Sequence[str]], np.ndarray]
Analyse = Callable[[sts.Encode, Params], dict[str, float]]


def train_and_evaluate(config: config_dict.ConfigDict, workdir: str, profile: str | None = None) -> None:
    """Trains as `config` says, in `workdir`, where it resumes if it was there before.

    Args:
      config, workdir: of the run.
      profile: a folder for a trace of a few steps of the first process (`profiling.traced`); None: there is none.

    Raises:
      UserError: for a mistake in the config, the data or the workdir; nothing is written before all is checked.
    """
    validate(config)
    parallel.initialize(config.parallel)
    with contextlib.closing(Preemption()) as preemption:
        _train_and_evaluate(config, workdir, profile, preemption)


def _train_and_evaluate(
    config: config_dict.ConfigDict, workdir: str, profile: str | None, preemption: Preemption
) -> None:
    with parallel.together():
        folder = as_path(workdir)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--workdir {workdir}: is a file")
        for field in ineffective(config):
            parallel.say(f"config.{field} has no effect beside the other fields")
        inputs = read_inputs(config)
        trace_folder = output_folder(profile, "--profile") if profile and parallel.is_first() else None
    model, total_steps = inputs.model, inputs.total_steps

    resuming = workdir_lib.is_workdir(folder)
    prints = inputs.fingerprints
    has_run = {"whether there is a run in --workdir": str(resuming)}
    scored = {"what is scored at the end": inputs.evaluation.final_fingerprint} if inputs.evaluation else {}
    parallel.agree({"the config": workdir_lib.identity(config), **prints, **scored, "--workdir": workdir, **has_run})
    with parallel.together():
        if resuming:
            workdir_lib.check_same_run(folder, config, prints)
        elif parallel.is_first():
            workdir_lib.create(folder, config, prints, model, inputs.tokenizer)
    with parallel.together():
        workdir_lib.wait_for(folder)

    mesh = step_lib.data_mesh(inputs.devices)
    settings = make_settings(config, max(total_steps, 1))  # the horizon that the learning rate is divided by
    graph, _ = huggingface.build(model.config, config.model.mlp != "none", jnp.dtype(config.train.dtype))
    state = step_lib.init_state(initial_params(config, model), settings)
    state = parallel.replicate(state, step_lib.replicated(mesh))
    checkpoints = Checkpoints(folder, config.checkpoint.keep_every)
    saved = checkpoints.resume(state)
    resumed = None if saved is None else int(saved.step)
    if saved is not None:
        state = saved
        parallel.say(f"resuming at step {resumed} of {total_steps}")

    encode, analyse = make_scored_encode(config, inputs, mesh), make_analyse(config, inputs, mesh)
    with parallel.together():
        metrics = workdir_lib.Metrics(folder, resumed) if parallel.is_first() else None
    with closing_all([checkpoints] if metrics is None else [metrics, checkpoints]):
        batches = Batches(inputs.corpus, config.train.batch_size, config.seed)
        recipe = make_recipe(config, inputs.num_columns, inputs.language_model)
        updates = Updates(graph, recipe, mesh, batches, total_steps, unpad=config.train.unpad)
        evaluation = inputs.evaluation
        loop = Loop(
            config, settings, total_steps, encode, evaluation, analyse, checkpoints, metrics, preemption, trace_folder
        )
        state = loop.run(updates, batches, step_lib.split_over_examples(mesh), state)
        best, params = checkpoints.restore_best(state.params)
        report(folder, encode, params, best, evaluation, config.seed)


def make_scored_encode(config: config_dict.ConfigDict, inputs: Inputs, mesh: Mesh) -> Encode:
    """encode(params, sentences) as everyone who loads the model will encode: in float32, without dropout."""
    return make_encode(
        huggingface.build(inputs.model.config, config.model.mlp != "none")[0],
        inputs.tokenizer,
        pooler=config.model.pooler,
        use_head=config.model.mlp == "always",
        max_length=inputs.model.max_length,
        sharding=step_lib.split_over_examples(mesh),
    )


def make_analyse(config: config_dict.ConfigDict, inputs: Inputs, mesh: Mesh) -> Analyse | None:
    """analyse(encode, params): numbers of the last layer, on the same sentences every time; None where it is off."""
    if inputs.analysis is None:
        return None
    sample, model = inputs.analysis, inputs.model
    tokens = TokenEncoder(
        huggingface.build(model.config, config.model.mlp != "none")[0],
        {},
        inputs.tokenizer,
        model.max_length,
        sharding=step_lib.split_over_examples(mesh),
        last_only=True,
    )
    found = survey(tokens, sample.sentences, Protocol(), "config.analysis.data")

    def analyse(encode: sts.Encode, params: Params) -> dict[str, float]:
        return measure_last_layer(encode, dataclasses.replace(tokens, params=params), found, sample)

    return analyse


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
    settings: step_lib.Settings
    total_steps: int
    encode: Encode
    evaluation: Evaluation | None
    analyse: Analyse | None
    checkpoints: Checkpoints
    metrics: workdir_lib.Metrics | None  # the first process's alone
    preemption: Preemption
    trace_folder: Path | None = None  # for a trace of a few steps; the first process's alone
    pending: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)  # still on the device

    def run(
        self, updates: Updates, batches: Batches, sharding: NamedSharding, state: step_lib.TrainState
    ) -> step_lib.TrainState:
        """All updates that are left. Where there are none at all, what a run starts from is scored and saved."""
        first = int(state.step)
        if not self.total_steps and self.checkpoints.latest is None:
            self.measure_space(0, state.params)
            self.save(state, self.evaluate(0, state.params))
        if first >= self.total_steps:
            if self.trace_folder:
                parallel.say(f"--profile {self.trace_folder}: no step is left that could be traced")
            return state

        def read(number: int) -> step_lib.Batch:
            return parallel.place(functools.partial(batches.rows, number), batches.batch_size, sharding)

        batch = read(first)
        num_columns = batch["input_ids"].shape[1]
        for step in range(first, min(first + 1 + (LAST_TRACED if self.trace_folder else 0), self.total_steps)):
            updates.compile(step, state, batch, self.settings)  # not within a trace; all batches have one shape
        if first == 0:
            self.measure_space(0, state.params)
            self.evaluate(0, state.params)

        sentences = self.config.train.batch_size * num_columns
        bar = tqdm(
            total=self.total_steps, initial=first, unit="step", dynamic_ncols=True, disable=not parallel.is_first()
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

    def beside(self, number: int, state: step_lib.TrainState) -> float:
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
            line = {name: float(values[name]) for name in step_lib.METRICS}
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
        if parallel.is_first():
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

    def save(self, state: step_lib.TrainState, score: float | None) -> None:
        """Saves a checkpoint, behind the metrics that belong to it."""
        with parallel.together():
            if self.metrics is not None:
                self.metrics.flush()
        self.checkpoints.save(state, score)


def report(folder: Folder, encode: Encode, params: Params, best: int, evaluation: Evaluation | None, seed: int) -> None:
    """Scores the best checkpoint on the test sets, prints the paper's table and writes `result.json`."""
    if evaluation is None:
        parallel.say(f"done; the last checkpoint (step {best}) is in {folder}")
        return
    result = final_scores(encode, params, evaluation, seed)
    if parallel.is_first():
        write_atomically(folder / "result.json", json.dumps(result, indent=2) + "\n")
    kind = "test" if evaluation.test else "development"
    behind = f" behind {evaluation.postprocess.method}" if evaluation.postprocess else ""
    parallel.say(f"best checkpoint: step {best}; {kind} scores{behind} (Spearman × 100, all):")
    parallel.say(sts.table({task: result[task] for task in evaluation.final}, evaluation.missing))
    if evaluation.transfer:
        parallel.say(f"transfer{behind} (accuracy):")
        parallel.say(transfer.table(result["transfer"], evaluation.transfer_missing))


def final_scores(encode: Encode, params: Params, evaluation: Evaluation, seed: int) -> dict[str, Any]:
    """The contents of `result.json`: the test tasks' scores, or the development pairs' where there are none.

    Behind them, as far as they are asked for: `average`; `development`, the development pairs' score behind the
    post-processing, which chose no checkpoint; `transfer`, by task, and `transfer_average`. `seed` is the flow's.
    """
    score = postprocess.scorer(lambda sentences: encode(params, sentences), evaluation.postprocess, seed)
    results = score(sts.evaluate, evaluation.final)
    beside: dict[str, Any] = sts.average(results, evaluation.missing)
    if evaluation.postprocess and evaluation.test:
        (development,) = score(sts.evaluate, evaluation.development).values()
        beside["development"] = development["spearman"]
    if evaluation.transfer:
        found = score(transfer.evaluate, evaluation.transfer)
        beside |= {"transfer": found, **transfer.average(found, evaluation.transfer_missing)}
    return {**results, **beside}
