"""A run, or several that are trained together: reads, checks, trains, and scores the best checkpoint of each."""

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.sections import Config, Section
from simcse_jax.devices import processes
from simcse_jax.devices.backend import slow_bfloat16
from simcse_jax.devices.preemption import Preemption
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.encoding.masked_tokens import masked_token_accuracy
from simcse_jax.errors import UserError
from simcse_jax.evaluation.against import Comparison, compare
from simcse_jax.host.locks import Check, held, never_lost
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.progress import doing
from simcse_jax.host.storage import Folder, as_path
from simcse_jax.models.parameters import Params
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.reporters.opening import check_installed, report_to_all
from simcse_jax.runs.run_files import AGAINST_START, BEST_STEP
from simcse_jax.runs.state import TrainState, frozen_params
from simcse_jax.runs.workdir import Workdir, identity
from simcse_jax.training.columns import check_corpus
from simcse_jax.training.inputs import Inputs, read_inputs
from simcse_jax.training.loop import Run, Training, closing_all
from simcse_jax.training.patience import Patience
from simcse_jax.training.profiling import LAST_TRACED, traced
from simcse_jax.training.programs import Updates
from simcse_jax.training.setup import make_setup

MASKED, TRUNCATED = "masked_token_accuracy", "truncated"  # in `result.json`


def train_and_evaluate(
    config: Config,
    workdir: str,
    profile: str | None = None,
    callbacks: Sequence[Callable[[int, Mapping[str, float]], object]] = (),
) -> bool:
    """Trains as configured, in `workdir`; a run that was started there before resumes.

    Args:
      config, workdir: of the run.
      profile: a folder for a trace of a few steps of the first process (`profiling.traced`); None for no trace.
      callbacks: called with the step and the scores after each evaluation, in every process.

    Returns:
      Whether this is the first process, which speaks for all.

    Raises:
      UserError: for a mistake in the config, the data or the workdir; nothing is written before all checks are done.
        For a tracker that is not installed or cannot be reached.
      Preempted, KeyboardInterrupt: for SIGTERM and Ctrl-C, after saving.
    """
    config = validate(config)
    check_installed(config)
    processes.initialize(config.parallel)
    train_all([config], [as_path(workdir)], profile=profile, callbacks=callbacks)
    return processes.is_first()


def train_all(
    configs: Sequence[Section],
    workdirs: Sequence[Folder],
    together: Folder | None = None,
    profile: str | None = None,
    callbacks: Sequence[Callable[[int, Mapping[str, float]], object]] = (),
) -> Sequence[Run]:
    """Trains a run, or several in one program, each in its workdir; the arguments are those of `train_and_evaluate`.

    `together` is the folder of the checkpoints of several runs, which have none of their own then. These hold the
    states of all, and the best parameters so far. Several must be in one process.

    Returns:
      The runs. Of several, those with a `problem` were given up.
    """
    with contextlib.ExitStack() as job:
        preemption = job.enter_context(contextlib.closing(Preemption()))
        with processes.together():
            folders = [Workdir(workdir) for workdir in workdirs]
            inputs = read(configs, folders)
            trace = output_folder(profile, option="--profile") if profile and processes.is_first() else None
        checks = [enter(job, *each, inputs, together is None) for each in zip(folders, configs, strict=True)]
        setup = make_setup(configs, inputs)
        checkpoints = Checkpoints(together or folders[0].path, configs[0].checkpoint.keep_every)
        state = setup.state()
        best = jax.tree.map(jnp.copy, state.params) if setup.together else {}
        batches = setup.batches()
        runs = [
            Run(config, folder, Patience(config.train.patience), name_of(folder) if together else "", check)
            for config, folder, check in zip(configs, folders, checks, strict=True)
        ]
        arguments = setup, runs, batches, Updates(setup, batches), setup.settings(), checkpoints
        training = Training(*arguments, callbacks=callbacks, best=best)
        state, resumed = training.restore(state)
        if resumed is not None:
            preemption.resumed(resumed)
        with processes.together():
            for run in runs if processes.is_first() else ():
                run.metrics = run.folder.metrics(resumed)
        with closing_all([*(run.metrics for run in runs if run.metrics), checkpoints]):
            begin(training, resumed, int(state.step))
            state = train(training, state, preemption, resumed, trace)
            finish(training, state)
    return runs


def read(configs: Sequence[Section], folders: Sequence[Workdir]) -> Inputs:
    """Everything that runs read before they start, checked, with what people should know of their configs.

    `folders` are those of the runs; empty where nothing is to be written.

    Raises:
      UserError: naming the field, the file or the workdir.
    """
    for config, folder in zip(configs, folders, strict=False):
        folder.check_is_folder()
        if folder.exists:  # before anything is read
            folder.check_same_config(config)
    for field in dict.fromkeys(field for config in configs for field in ineffective(config)):
        processes.say(f"config.{field} has no effect with the other fields")
    if configs[0].train.dtype == "bfloat16" and (slow := slow_bfloat16()):
        processes.say(f"config.train.dtype={slow}")
    inputs = read_inputs(configs[0])
    for config in configs[1:]:
        check_corpus(config, inputs.corpus)
    return inputs


def enter(job: contextlib.ExitStack, folder: Workdir, config: Section, inputs: Inputs, alone: bool) -> Check:
    """Creates the workdir, or checks that it is this run's, and that all processes run the same on the same data.

    The first process has the workdir's lock until `job` ends. A run that is not `alone` has no checkpoints there, and
    so no file of what they lack.

    Returns:
      A function that raises a `UserError` if the lock was lost.

    Raises:
      UserError: naming what differs in the workdir or in another process, or the other job that writes there.
    """
    prints = inputs.fingerprints
    facts = {"the config": identity(config), **prints}
    if inputs.evaluation:
        facts["the evaluation at the end"] = inputs.evaluation.final_fingerprint
    resuming = folder.exists
    facts |= {"--workdir": str(folder), "whether there is a run in --workdir": str(resuming)}
    processes.agree(facts)
    check: Check = never_lost
    frozen = frozen_params(config.model, inputs.model)
    with processes.together():
        if processes.is_first():
            check = job.enter_context(held(folder.path))
        if resuming or folder.exists:  # another job may have ended just now
            folder.check_same_run(config, prints)
        elif processes.is_first():
            examples, prompts = inputs.num_examples, inputs.prompts
            folder.create(config, prints, inputs.model, inputs.tokenizer, examples, frozen, prompts)
        if processes.is_first() and alone:
            folder.keep_frozen(frozen)
    with processes.together():
        folder.wait()
    return check


def name_of(folder: Workdir) -> str:
    """One of several runs, for people: its folder is VARIANT/seedN."""
    return f"{folder.path.parent.name} ({folder.path.name})"


def begin(training: Training, resumed: int | None, step: int) -> None:
    """Before the first step: opens the reporters, and finds out which runs have ended already."""
    with processes.together():
        for run in training.runs:
            if run.metrics is not None:
                report_to_all(run.metrics, run.config, run.folder.path, resumed)
                run.patience.replay(run.metrics.lines)
    for run in training.runs:
        training.decide(run)
    with processes.together():
        if processes.is_first() and (resumed is None or training.left(step)):
            for run in training.runs:
                run.folder.drop_result()


def train(
    training: Training, state: TrainState, preemption: Preemption, resumed: int | None, trace: Path | None
) -> TrainState:
    """All steps that are left, with a trace of some of them in the folder `trace`."""
    left, schedule = training.left(int(state.step)), training.setup.schedule
    if not schedule.total and resumed is None:
        training.look(0, state, schedule.due(0))
    if trace and not left:
        processes.say(f"--profile {trace}: no step is left that could be traced")
    elif trace:
        training.ahead = 1 + LAST_TRACED  # nothing is compiled within the trace
    with traced(training.updates, trace if left else None, left) as training.traced_update:
        return training.train(state, preemption)


def finish(training: Training, state: TrainState) -> None:
    """Scores each run's best checkpoint, and writes its `result.json`."""
    for row, run in enumerate(training.runs):
        if training.setup.together and run.continues and not is_finite(training.setup.of_run(state.params, row)):
            training.stop(run, int(state.step), "its parameters are not finite")  # also if it stopped before a kill
        if run.problem:
            continue
        try:
            result = report(run, training.setup.inputs, *choose(training, row, state))
        except UserError as error:  # as of a post-processing that cannot be fit on its embeddings
            if not training.setup.together:
                raise
            training.stop(run, int(state.step), str(error))
            continue
        if run.metrics is not None:
            run.metrics.finish(result)


def is_finite(params: Params) -> bool:
    """Whether all parameters are finite."""
    return all(np.isfinite(np.asarray(value)).all() for value in params.values())


def choose(training: Training, row: int, state: TrainState) -> tuple[int, Embedder, Embedder | None]:
    """The best step of a run, given by its row, and its model; also the start's, where they are to be compared."""
    setup, checkpoints, run = training.setup, training.checkpoints, training.runs[row]

    def model(params: Params, tower: int = 0) -> Embedder:
        return setup.embed.with_params(setup.model(setup.of_run(params, row), tower))

    if setup.together:
        return run.best[1], model(training.best), None
    intended = checkpoints.best
    best, params = checkpoints.restore_best(state.params)
    kept = [0] if setup.schedule.keep_start else []  # the start may have been better
    with processes.together():
        run.check()
        if processes.is_first() and (best != intended or run.folder.scored_step() not in (None, best, *kept)):
            run.folder.drop_result()
    start, last = None, int(state.step)
    if kept and last:
        start = model(checkpoints.restore_params(0, state.params) if best else params, checkpoints.tower(0))
        if not best:  # none scored better: the last one is compared
            best, params = last, state.params
    return best, model(params, checkpoints.tower(best)), start


def report(run: Run, inputs: Inputs, best: int, embed: Embedder, start: Embedder | None = None) -> dict[str, Any]:
    """Scores the best checkpoint on the test sets, writes `result.json` and prints the paper's tables.

    If `eval.extra` asks for more scores of a finished run, only the missing ones are computed. With a `start`, the
    checkpoint is compared with it, and the start is kept unless the checkpoint is better.

    Returns:
      The contents of `result.json`; nothing where nothing is scored.
    """
    if inputs.evaluation is None:
        run.say(f"done; the last checkpoint (step {best}) is in {run.folder}")
        return {}
    before = scores_before(run.folder) if inputs.evaluation.extra else {}
    against: dict[str, Any] = {}
    with doing(run.name):
        result = final_scores(inputs, embed, run.config.seed, before)
        if start is not None:
            comparison = compare(inputs.evaluation.at_end, start, embed, run.config.seed)
            against = {AGAINST_START: comparison._asdict() | {"step": best}}
            if not comparison.is_better:
                best, result = 0, final_scores(inputs, start, run.config.seed, {})
    result |= {BEST_STEP: best} | run.patience.result | against
    if processes.is_first():
        run.folder.write_result(result)
    first, *others = inputs.evaluation.tables(result)
    run.say(f"best checkpoint: step {best}; {first}")
    for table in others:
        run.say(table)
    if start is not None:
        run.say(describe_comparison(comparison))
    for size, numbers in result.get(TRUNCATED, {}).items():
        for table in inputs.evaluation.tables(numbers):
            run.say(f"the first {size} elements: {table}")
    if MASKED in result:
        run.say(f"masked tokens of the development sentences: {result[MASKED]:.2f}% guessed")
    return result


def describe_comparison(comparison: Comparison) -> str:
    """The comparison with the start, for people."""
    before, after, low, high = comparison
    verdict = "training helped" if comparison.is_better else "no better, so the start is kept"
    interval = f"95% interval {low:+.2f} to {high:+.2f}"
    return f"before {before:.2f}, after {after:.2f}: {after - before:+.2f}, {interval}; {verdict}"


def scores_before(folder: Workdir) -> dict[str, Any]:
    """What `result.json` has of the same model, as the first process sees it; {} if there is none.

    Raises:
      UserError: when it is damaged.
    """
    with processes.together():
        text = json.dumps(folder.read_result() or {}) if processes.is_first() else ""
    return json.loads(processes.gather(text)[0])


def final_scores(inputs: Inputs, embed: Embedder, seed: int, before: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of `result.json`: the evaluation's, and of a language model the masked tokens that it guesses.

    `truncated` has the evaluation's for each size below the whole embedding's, at which objectives saw it.

    Args:
      inputs: of the run; it must have an evaluation.
      embed: the model, with all parameters of the run.
      seed: of the run.
      before: the contents so far, of the same model; kept if `eval.extra` asks for more.
    """
    everything = inputs.evaluation
    assert everything is not None

    def scores(embed: Embedder, before: Mapping[str, Any]) -> dict[str, Any]:
        evaluation = everything.missing_in(before)
        kept = before if evaluation is not everything else {}
        return {**kept, **evaluation.final_scores(lambda some: embed.with_progress(some, processes.is_first()), seed)}

    result = scores(embed, before)
    if inputs.sizes:
        smaller = result.get(TRUNCATED, {})
        result[TRUNCATED] = {
            str(size): scores(embed.truncated(size, normalized_first=False), smaller.get(str(size), {}))
            for size in inputs.sizes
        }
    if MASKED not in result and inputs.language_model and (pairs := everything.pairs):
        sentences = list(dict.fromkeys([*pairs.first, *pairs.second]))
        accuracy = masked_token_accuracy(embed, sentences, **inputs.language_model._asdict())
        result |= {MASKED: accuracy} if math.isfinite(accuracy) else {}
    return result
