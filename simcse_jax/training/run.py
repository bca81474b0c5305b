"""A run, or several that are trained together: reads, checks, trains, and scores the best checkpoint of each."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.sections import Config, Section
from simcse_jax.devices import processes
from simcse_jax.devices.backend import slow_bfloat16
from simcse_jax.devices.preemption import Preemption
from simcse_jax.host.closing import closing_all
from simcse_jax.host.locks import held
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import Folder, as_path
from simcse_jax.objectives.registry import trained
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.reporters.opening import check_installed, report_to_all
from simcse_jax.runs.state import TrainState, frozen_params
from simcse_jax.runs.workdir import Workdir, identity
from simcse_jax.training.columns import check_corpus
from simcse_jax.training.inputs import Inputs, read_inputs
from simcse_jax.training.loop import Run, Training
from simcse_jax.training.patience import Patience
from simcse_jax.training.profiling import LAST_TRACED, traced
from simcse_jax.training.programs import Updates
from simcse_jax.training.result import finish
from simcse_jax.training.setup import make_setup


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
            configs = [folder.continued(config) for folder, config in zip(folders, configs, strict=True)]
            inputs = read(configs, folders)
            trace = output_folder(profile, option="--profile") if profile and processes.is_first() else None
        for folder, config in zip(folders, configs, strict=True):
            enter(job, folder, config, inputs, together is None)
        setup = make_setup(configs, inputs)
        checkpoints = Checkpoints(together or folders[0].path, configs[0].checkpoint.keep_every)
        state = setup.state()
        best = jax.tree.map(jnp.copy, state.params) if setup.together else {}
        batches = setup.batches()
        names = [f"{folder.path.parent.name} ({folder.path.name})" if together else "" for folder in folders]
        runs = [
            Run(config, folder, Patience(config.train.patience), name)
            for config, folder, name in zip(configs, folders, names, strict=True)
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
    losses = [[f"{config.objective[name].weight:g} {name}" for name in trained(config.objective)] for config in configs]
    for loss in dict.fromkeys(" + ".join(terms) for terms in losses if len(terms) > 1):
        processes.say(f"loss: {loss}")
    if configs[0].train.dtype == "bfloat16" and (slow := slow_bfloat16()):
        processes.say(f"config.train.dtype={slow}")
    inputs = read_inputs(configs[0])
    for config in configs[1:]:
        assert inputs.corpus is not None  # runs that train nothing are alone
        check_corpus(config, inputs.corpus)
    return inputs


def enter(job: contextlib.ExitStack, folder: Workdir, config: Section, inputs: Inputs, alone: bool) -> None:
    """Creates the workdir, or checks that it is this run's, and that all processes run the same on the same data.

    The first process has the workdir's lock until `job` ends. A run that is not `alone` has no checkpoints there, and
    so no file of what they lack.

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
    frozen = frozen_params(config.model, inputs.model)
    with processes.together():
        if processes.is_first():
            job.enter_context(held(folder.path))
        if resuming or folder.exists:  # another job may have ended just now
            folder.check_same_run(config, prints)
        elif processes.is_first():
            examples, prompts = inputs.num_examples, inputs.prompts
            folder.create(config, prints, inputs.model, inputs.tokenizer, examples, frozen, prompts)
        if processes.is_first() and alone:
            folder.keep_frozen(frozen)
    with processes.together():
        folder.wait()


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
