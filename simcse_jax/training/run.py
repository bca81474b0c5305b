"""A run: reads, checks, trains, and scores the best checkpoint."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import LARGEST, flatten, trains
from simcse_jax.config.loss_fields import matryoshka_sizes
from simcse_jax.config.recorded import config_fingerprint, to_record
from simcse_jax.config.sections import Config, Section
from simcse_jax.data.corpora import AnyCorpus
from simcse_jax.devices import processes
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import UserError
from simcse_jax.host.locks import held
from simcse_jax.host.names import by_field
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import as_path
from simcse_jax.objectives.registry import needing, trained_objectives
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.report import Report, reported
from simcse_jax.runs.reporters.opening import check_installed, report_to_all
from simcse_jax.runs.state import TrainState, add_parts, frozen_params, model_spec, starting_adapter
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.evaluation import check_postprocess, check_sizes, read_analysis, read_evaluation
from simcse_jax.training.folds import cross_fit, say_tries
from simcse_jax.training.generator import read_generator
from simcse_jax.training.inputs import (
    Inputs,
    check_head,
    check_poolers,
    check_projector,
    choose_devices,
    read_folds,
    read_held_out,
    read_masking,
    read_positive_template,
    read_start,
)
from simcse_jax.training.loop import Training
from simcse_jax.training.patience import Patience
from simcse_jax.training.profiling import LAST_TRACED, trace_steps
from simcse_jax.training.programs import Updates
from simcse_jax.training.reading import read_corpus
from simcse_jax.training.result import finish
from simcse_jax.training.setup import (
    analysis_spec,
    check_corpus,
    data_spec,
    evaluation_spec,
    folds_spec,
    held_out_spec,
    make_settings,
    make_setup,
)

READ = (
    "model.init_from",
    "model.generator",
    "model.lora.init_from",
    "teacher.model",
    "teacher.second",
    "data.train",
    "data.augment.lexicon",
    "eval.data",
    "eval.retrieval.data",
    "eval.postprocess_data",
    "analysis.data",
)
LISTS = ("data.train", "eval.retrieval.data", "eval.postprocess_data")  # fields that may name several sources


def train_and_evaluate(
    config: Config,
    workdir: str,
    profile: str | None = None,
    callbacks: Sequence[Callable[[int, Mapping[str, float]], object]] = (),
    recipe: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Trains as configured, in `workdir`; a run that was started there before resumes.

    Args:
      config, workdir: of the run.
      profile: a folder for a trace of a few steps of the first process (`profiling.trace_steps`); None for no trace.
      callbacks: called with the step and the scores after each evaluation, in every process.
      recipe: what the config was made of, for the report (`flags.changed_from`).

    Returns:
      Whether this is the first process, which speaks for all.

    Raises:
      UserError: for a mistake in the config, the data or the workdir; nothing is written before all checks are done.
        For a tracker that is not installed or cannot be reached.
      Preempted, KeyboardInterrupt: for SIGTERM and Ctrl-C, after saving.
    """
    config = validate(config)
    check_installed(config.train.report_to)
    processes.initialize(config.parallel.processes, config.parallel.process_id, config.parallel.coordinator)
    with contextlib.ExitStack() as job:
        preemption = job.enter_context(contextlib.closing(Preemption()))
        with processes.exit_together():
            folder = Workdir(as_path(workdir))
            inputs = read(config, folder)
            trace = output_folder(profile, option="--profile") if profile and processes.is_first() else None
        enter(job, folder, config, inputs, recipe)
        with processes.exit_together():
            job.enter_context(reported(folder.path, bool(config.train.report_to) and processes.is_first()))
        setup = make_setup(config, inputs)
        checkpoints = Checkpoints(folder.path, config.checkpoint.keep_every)
        batches, of_folds = setup.batches(), setup.fold_batches()
        updates = Updates(setup, batches, of_folds)
        cross_fitted = None
        if inputs.folds:  # before the run's own state takes memory
            say_tries(folder.path, inputs.fingerprints)
            settings = [make_settings(config, steps) for steps in count_fold_steps(config, inputs)]
            cross_fitted = cross_fit(setup, updates, of_folds, settings, folder.path, preemption)
        state = setup.state()
        parts = setup, folder, Patience(config.train.patience), batches, updates, setup.settings()
        training = Training(*parts, checkpoints, callbacks=callbacks, cross_fitted=cross_fitted)
        state, resumed = training.restore(state)
        if resumed is not None:
            preemption.saved(f"step {resumed}")
        with processes.exit_together():
            if processes.is_first():
                training.metrics = folder.metrics(resumed)
        for part in (checkpoints, training.metrics):
            if part is not None:
                job.callback(part.close)
        begin(training, config, resumed, int(state.step))
        training.ended = training.ended or bool(cross_fitted and not cross_fitted.comparison.is_better)
        state = train(training, state, preemption, resumed, trace)
        finish(training, state)
    return processes.is_first()


def read(config: Section, folder: Workdir | None = None) -> Inputs:
    """`read_inputs`, with notes on the config. `folder` is the run's; None where nothing is to be written."""
    if folder is not None and folder.exists:  # before anything is read
        folder.check_same_config(to_record(config))
    fields, trained = flatten(config), trained_objectives(config.objective)
    for field in ineffective(config):
        last = field.partition("=")[0].rpartition(".")[2] if field.startswith("objective.") else ""
        meant = [name for objective in trained if (name := f"objective.{objective}.{last}") in fields and last]
        instead = f"; config.{meant[0]} has" if meant else ""
        processes.say(f"config.{field} has no effect with the other fields{instead}")
    terms = [f"{config.objective[name].weight:g} {name}" for name in trained]
    if len(terms) > 1:
        processes.say(f"loss: {' + '.join(terms)}")
    return read_inputs(config)


def sources(config: Section) -> dict[str, str]:
    """The names of what a run reads, by the fields that have them; not all are files or folders."""
    fields = flatten(config)
    named = {f"config.{field}": fields[field] for field in READ}
    for field in LISTS:
        del named[f"config.{field}"]
        named |= by_field(f"config.{field}", fields[field])
    return named


def read_inputs(config: Section) -> Inputs:
    """Reads and checks everything that a run needs before it starts."""
    spec, data, scored, training = model_spec(config), data_spec(config), evaluation_spec(config), trains(config)
    batch_size, views = config.train.batch_size, config.views
    devices = choose_devices(config.parallel.devices, config.parallel.parts, batch_size if training else 0)
    apart = examples = folds = None
    if config.data.held_out and training:
        apart = read_held_out(data, held_out_spec(config), scored.retrieval, devices)
        examples = apart.examples
    if config.data.folds and training:
        examples, folds = read_folds(data, folds_spec(config), scored.retrieval, devices)
    evaluation = apart.evaluation if apart else read_evaluation(scored, devices)

    model = read_start(spec, training, measured=config.analysis.every > 0)
    tokenizer = model.tokenizer
    model_config = dataclasses.replace(
        model.config, convolutions=spec.convolutions, mask_token_id=tokenizer.mask_token_id
    )
    model = dataclasses.replace(model, config=model_config)
    template = read_positive_template(views.positive_template, views.denoising, model, tokenizer)
    check_poolers(spec, model, [name for name, value in views.items() if value == "shuffled"])
    add_parts(model.config, spec)  # refuses what does not fit
    adapter = starting_adapter(spec, model)
    mask_token = spec.objectives.get("mlm", {}).get("mask_token", "")
    language_model = read_masking(model, mask_token) if needing(spec.objectives, "masks_tokens") else None
    replaces = training and needing(spec.objectives, "replaces_tokens")
    generator = read_generator(spec.generator, model, data.longest) if replaces else None
    check_projector(spec, model.config)
    analysis = read_analysis(analysis_spec(config), scored, evaluation) if config.analysis.every else None
    check_postprocess(evaluation, model.config.sentence_size)
    if not training:
        check_head(spec, model)
        return Inputs(devices, evaluation, model, tokenizer, None, language_model, analysis, 0, adapter=adapter)

    sizes = check_sizes(matryoshka_sizes(config), model.config.sentence_size, evaluation)
    corpus = read_corpus(data, model, tokenizer, examples)
    check_corpus(config, corpus)
    total_steps = count_steps(config, corpus)
    if total_steps > LARGEST:
        raise UserError(f"config.train.epochs={config.train.epochs}: gives {total_steps:,} steps; at most {LARGEST:,}")
    inputs = Inputs(
        *(devices, evaluation, model, tokenizer, corpus, language_model, analysis, total_steps, generator, adapter),
        sizes=sizes,
        positive_template=template,
    )
    settings = model.settings
    usual = settings.prompts.get(settings.default_prompt_name or "", "") if spec.keep_settings else ""
    prompts = inputs.prompts, usual
    return inputs._replace(
        evaluation=evaluation and evaluation.with_prompts(*prompts), folds=folds and folds.with_prompts(*prompts)
    )


def count_fold_steps(config: Section, inputs: Inputs) -> list[int]:
    """The steps of the model that judges each fold; [] without folds."""
    return [count_steps(config, corpus) for corpus in inputs.other_folds]


def count_steps(config: Section, corpus: AnyCorpus) -> int:
    """The steps of training on a corpus."""
    return config.train.max_steps or config.train.epochs * corpus.steps_per_epoch(config.train.batch_size)


def enter(
    job: contextlib.ExitStack, folder: Workdir, config: Section, inputs: Inputs, recipe: Mapping[str, Any]
) -> None:
    """Creates the workdir, or checks that it is this run's, and that all processes run the same on the same data.

    The first process has the workdir's lock until `job` ends.
    """
    prints = inputs.fingerprints
    facts = {"the config": config_fingerprint(config), **prints}
    if inputs.evaluation:
        facts["the evaluation at the end"] = inputs.evaluation.final_fingerprint
    resuming = folder.exists
    facts |= {"--workdir": str(folder), "whether there is a run in --workdir": str(resuming)}
    processes.agree(facts)
    spec = model_spec(config)
    frozen = frozen_params(spec, inputs.model)
    with processes.exit_together():
        if processes.is_first():
            job.enter_context(held(folder.path))
        if resuming or folder.exists:  # another job may have ended just now
            folder.check_same_run(to_record(config), prints)
        elif processes.is_first():
            model = spec, inputs.model, inputs.tokenizer
            folder.create(to_record(config), prints, *model, inputs.num_examples, frozen, inputs.prompts, recipe)
        if processes.is_first():
            folder.keep_frozen(frozen)
    with processes.exit_together():
        folder.wait()


def begin(training: Training, config: Section, resumed: int | None, step: int) -> None:
    """Before the first step: opens the reporters, and finds out whether the run has ended already."""
    with processes.exit_together():
        if training.metrics is not None:
            fields, folder = flatten(config), training.folder.path
            report_to_all(training.metrics, config.train.report_to, fields, folder, resumed)
            if config.train.report_to:
                training.metrics.add(Report(folder))
            training.patience.replay(training.metrics.lines)
    training.decide()
    with processes.exit_together():
        if processes.is_first() and (resumed is None or training.left(step)):
            training.folder.drop_result()


def train(
    training: Training, state: TrainState, preemption: Preemption, resumed: int | None, trace: Path | None
) -> TrainState:
    """All steps that are left, with a trace of some of them in the folder `trace`."""
    steps_left, schedule = training.left(int(state.step)), training.setup.schedule
    if not steps_left and resumed is None:
        training.look(0, state, schedule.due(0))
    if trace and not steps_left:
        processes.say(f"--profile {trace}: no step is left that could be traced")
    elif trace:
        training.ahead = 1 + LAST_TRACED  # nothing is compiled within the trace
    with trace_steps(training.updates, trace if steps_left else None, steps_left) as training.traced_update:
        return training.train(state, preemption)
