"""A run: reads, checks, trains, and scores the best checkpoint."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.sections import Config, Section
from simcse_jax.devices import processes
from simcse_jax.devices.backend import slow_bfloat16
from simcse_jax.devices.preemption import Preemption
from simcse_jax.host.closing import closing_all
from simcse_jax.host.locks import held
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import as_path
from simcse_jax.objectives.registry import trained
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.reporters.opening import check_installed, report_to_all
from simcse_jax.runs.state import TrainState, frozen_params, model_spec
from simcse_jax.runs.workdir import Workdir, identity
from simcse_jax.training.inputs import Inputs, read_inputs
from simcse_jax.training.loop import Training
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
    with contextlib.ExitStack() as job:
        preemption = job.enter_context(contextlib.closing(Preemption()))
        with processes.together():
            folder = Workdir(as_path(workdir))
            config = folder.continued(config)
            inputs = read(config, folder)
            trace = output_folder(profile, option="--profile") if profile and processes.is_first() else None
        enter(job, folder, config, inputs)
        setup = make_setup(config, inputs)
        checkpoints = Checkpoints(folder.path, config.checkpoint.keep_every)
        state, batches = setup.state(), setup.batches()
        parts = setup, folder, Patience(config.train.patience), batches, Updates(setup, batches), setup.settings()
        training = Training(*parts, checkpoints, callbacks=callbacks)
        state, resumed = training.restore(state)
        if resumed is not None:
            preemption.resumed(resumed)
        with processes.together():
            if processes.is_first():
                training.metrics = folder.metrics(resumed)
        with closing_all([part for part in (training.metrics, checkpoints) if part is not None]):
            begin(training, resumed, int(state.step))
            state = train(training, state, preemption, resumed, trace)
            finish(training, state)
    return processes.is_first()


def read(config: Section, folder: Workdir | None = None) -> Inputs:
    """Everything that a run reads before it starts, checked, with what people should know of its config.

    `folder` is the run's; None where nothing is to be written.

    Raises:
      UserError: naming the field, the file or the workdir.
    """
    if folder is not None:
        folder.check_is_folder()
        if folder.exists:  # before anything is read
            folder.check_same_config(config)
    for field in ineffective(config):
        processes.say(f"config.{field} has no effect with the other fields")
    terms = [f"{config.objective[name].weight:g} {name}" for name in trained(config.objective)]
    if len(terms) > 1:
        processes.say(f"loss: {' + '.join(terms)}")
    if config.train.dtype == "bfloat16" and (slow := slow_bfloat16()):
        processes.say(f"config.train.dtype={slow}")
    return read_inputs(config)


def enter(job: contextlib.ExitStack, folder: Workdir, config: Section, inputs: Inputs) -> None:
    """Creates the workdir, or checks that it is this run's, and that all processes run the same on the same data.

    The first process has the workdir's lock until `job` ends.

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
    frozen = frozen_params(model_spec(config), inputs.model)
    with processes.together():
        if processes.is_first():
            job.enter_context(held(folder.path))
        if resuming or folder.exists:  # another job may have ended just now
            folder.check_same_run(config, prints)
        elif processes.is_first():
            examples, prompts = inputs.num_examples, inputs.prompts
            folder.create(config, prints, inputs.model, inputs.tokenizer, examples, frozen, prompts)
        if processes.is_first():
            folder.keep_frozen(frozen)
    with processes.together():
        folder.wait()


def begin(training: Training, resumed: int | None, step: int) -> None:
    """Before the first step: opens the reporters, and finds out whether the run has ended already."""
    with processes.together():
        if training.metrics is not None:
            report_to_all(training.metrics, training.setup.config, training.folder.path, resumed)
            training.patience.replay(training.metrics.lines)
    training.decide()
    with processes.together():
        if processes.is_first() and (resumed is None or training.left(step)):
            training.folder.drop_result()


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
