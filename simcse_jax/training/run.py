"""A run: reads, checks, trains, and scores the best checkpoint."""

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.sections import Config, Section
from simcse_jax.devices import processes
from simcse_jax.devices.backend import slow_bfloat16
from simcse_jax.devices.mesh import replicate
from simcse_jax.devices.parts import distribute, whole
from simcse_jax.devices.preemption import Preemption
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.encoding.masked_tokens import masked_token_accuracy
from simcse_jax.evaluation.against import Comparison, compare
from simcse_jax.host.locks import Check, held, never_lost
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.progress import doing
from simcse_jax.host.storage import as_path
from simcse_jax.models.parameters import Params
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.reporters.opening import check_installed, report_to_all
from simcse_jax.runs.run_files import AGAINST_START, BEST_STEP
from simcse_jax.runs.state import TrainState, frozen_params
from simcse_jax.runs.workdir import Workdir, identity
from simcse_jax.training.inputs import Inputs, read_inputs
from simcse_jax.training.loop import closing_all, train
from simcse_jax.training.patience import Patience
from simcse_jax.training.profiling import LAST_TRACED, traced
from simcse_jax.training.programs import Updates
from simcse_jax.training.setup import make_setup
from simcse_jax.training.single import SingleRun

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
    with contextlib.ExitStack() as job:
        preemption = job.enter_context(contextlib.closing(Preemption()))
        with processes.together():
            folder = Workdir(as_path(workdir))
            folder.check_is_folder()
            if folder.exists:  # before anything is read
                folder.check_same_config(config)
            for field in ineffective(config):
                processes.say(f"config.{field} has no effect with the other fields")
            if config.train.dtype == "bfloat16" and (slow := slow_bfloat16()):
                processes.say(f"config.train.dtype={slow}")
            inputs = read_inputs(config)
            trace_folder = output_folder(profile, option="--profile") if profile and processes.is_first() else None
        check = enter(job, folder, config, inputs)

        setup = make_setup(config, inputs)
        state = distribute(setup.state(config), setup.mesh)
        checkpoints = Checkpoints(folder.path, config.checkpoint.keep_every)
        state, resumed = resume(checkpoints, state, inputs.total_steps)
        if resumed is not None:
            preemption.resumed(resumed)
        with processes.together():
            metrics = folder.metrics(resumed) if processes.is_first() else None
            lines = metrics.lines if metrics is not None else []
        with closing_all([checkpoints] if metrics is None else [metrics, checkpoints]):
            with processes.together():
                if metrics is not None:
                    report_to_all(metrics, config, folder.path, resumed)
            batches = setup.batches(config.seed)
            updates = Updates(
                setup.graph,
                setup.recipe,
                setup.mesh,
                batches,
                inputs.total_steps,
                unpad=config.train.unpad,
                frozen=setup.frozen,
                recipes=setup.recipes,
            )
            settings = replicate(setup.settings(config), setup.replicated)  # once, and not with each step
            run = SingleRun(setup, batches, updates, settings, checkpoints, metrics, check=check, callbacks=callbacks)
            run.patience = Patience(config.train.patience).replay(lines)
            run.decide()
            left = 0 if run.ended else inputs.total_steps - int(state.step)
            with processes.together():
                if (resumed is None or left > 0) and processes.is_first():
                    folder.drop_result()
            if not inputs.total_steps and resumed is None:
                run.look(0, state, setup.schedule.due(0))
            if trace_folder and left < 1:
                processes.say(f"--profile {trace_folder}: no step is left that could be traced")
            elif trace_folder:
                run.ahead = 1 + LAST_TRACED  # nothing is compiled within the trace
            with traced(updates, trace_folder if left > 0 else None, left) as run.traced_update:
                state = train(run, setup.schedule, state, preemption)
            intended = checkpoints.best
            best, params = checkpoints.restore_best(state.params)
            kept = [0] if setup.schedule.keep_start else []  # the start may have been better
            with processes.together():
                check()
                if processes.is_first() and (best != intended or folder.scored_step() not in (None, best, *kept)):
                    folder.drop_result()

            def embedder(params: Params, step: int) -> Embedder:
                return setup.embed.with_params(setup.model(whole(params, setup.mesh), checkpoints.tower(step)))

            start, last = None, int(state.step)
            if kept and last:
                start = embedder(checkpoints.restore_params(0, state.params) if best else params, 0)
                if not best:  # none scored better: the last one is compared
                    best, params = last, state.params
            model = embedder(params, best)
            result = report(folder, model, best, inputs, config.seed, run.patience, start)
            if metrics is not None:
                metrics.finish(result)
            return processes.is_first()


def enter(job: contextlib.ExitStack, folder: Workdir, config: Section, inputs: Inputs) -> Check:
    """Creates the workdir, or checks that it is this run's, and that all processes run the same on the same data.

    The first process has the workdir's lock until `job` ends.

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
        if processes.is_first():
            folder.keep_frozen(frozen)
    with processes.together():
        folder.wait()
    return check


def resume(checkpoints: Checkpoints, state: TrainState, total: int) -> tuple[TrainState, int | None]:
    """The newest saved state and its step; the initial state and None if none was saved."""
    saved = checkpoints.resume(state)
    if saved is None:
        return state, None
    processes.say(f"resuming at step {int(saved.step)} of {total}")
    return saved, int(saved.step)


def report(
    folder: Workdir,
    embed: Embedder,
    best: int,
    inputs: Inputs,
    seed: int,
    patience: Patience,
    start: Embedder | None = None,
) -> dict[str, Any]:
    """Scores the best checkpoint on the test sets, writes `result.json` and prints the paper's tables.

    If `eval.extra` asks for more scores of a finished run, only the missing ones are computed. With a `start`, the
    checkpoint is compared with it, and the start is kept unless the checkpoint is better.

    Returns:
      The contents of `result.json`; nothing where nothing is scored.
    """
    if inputs.evaluation is None:
        processes.say(f"done; the last checkpoint (step {best}) is in {folder}")
        return {}
    before = scores_before(folder) if inputs.evaluation.extra else {}
    against: dict[str, Any] = {}
    with doing():
        result = final_scores(inputs, embed, seed, before)
        if start is not None:
            comparison = compare(inputs.evaluation.at_end, start, embed, seed)
            against = {AGAINST_START: comparison._asdict() | {"step": best}}
            if not comparison.is_better:
                best, result = 0, final_scores(inputs, start, seed, {})
    result |= {BEST_STEP: best} | patience.result | against
    if processes.is_first():
        folder.write_result(result)
    first, *others = inputs.evaluation.tables(result)
    processes.say(f"best checkpoint: step {best}; {first}")
    for table in others:
        processes.say(table)
    if start is not None:
        processes.say(describe_comparison(comparison))
    for size, numbers in result.get(TRUNCATED, {}).items():
        for table in inputs.evaluation.tables(numbers):
            processes.say(f"the first {size} elements: {table}")
    if MASKED in result:
        processes.say(f"masked tokens of the development sentences: {result[MASKED]:.2f}% guessed")
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
