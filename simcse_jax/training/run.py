"""The run: build, loop, evaluate, keep the best."""

import contextlib
import dataclasses
import json
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import config_dict

from simcse_jax.analysis.last_layer import measure_last_layer
from simcse_jax.analysis.protocol import Protocol
from simcse_jax.analysis.tokens import survey
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.data.batches import Batches
from simcse_jax.devices import processes
from simcse_jax.devices.mesh import data_mesh, replicate, replicated, split_over_examples
from simcse_jax.devices.preemption import Preemption
from simcse_jax.encoding.embedder import make_encode
from simcse_jax.encoding.tokens import TokenEncoder
from simcse_jax.errors import UserError
from simcse_jax.evaluation import postprocess, sts, transfer
from simcse_jax.models.head import HEADS
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.metrics import Metrics
from simcse_jax.runs.state import initial_params
from simcse_jax.runs.workdir import check_same_run, create, identity, is_workdir, wait_for
from simcse_jax.storage import Folder, as_path, output_folder, write_atomically
from simcse_jax.training.inputs import Evaluation, Inputs, read_inputs
from simcse_jax.training.loop import Analyse, Encode, Loop, closing_all
from simcse_jax.training.optimizer import init_state
from simcse_jax.training.programs import Updates
from simcse_jax.training.recipe import make_recipe, make_settings


def train_and_evaluate(config: config_dict.ConfigDict, workdir: str, profile: str | None = None) -> None:
    """Trains as `config` says, in `workdir`, where it resumes if it was there before.

    Args:
      config, workdir: of the run.
      profile: a folder for a trace of a few steps of the first process (`profiling.traced`); None: there is none.

    Raises:
      UserError: for a mistake in the config, the data or the workdir; nothing is written before all is checked.
    """
    validate(config)
    processes.initialize(config.parallel)
    with contextlib.closing(Preemption()) as preemption:
        _train_and_evaluate(config, workdir, profile, preemption)


def _train_and_evaluate(
    config: config_dict.ConfigDict, workdir: str, profile: str | None, preemption: Preemption
) -> None:
    with processes.together():
        folder = as_path(workdir)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--workdir {workdir}: is a file")
        for field in ineffective(config):
            processes.say(f"config.{field} has no effect beside the other fields")
        inputs = read_inputs(config)
        trace_folder = output_folder(profile, "--profile") if profile and processes.is_first() else None
    model, total_steps = inputs.model, inputs.total_steps

    resuming = is_workdir(folder)
    prints = inputs.fingerprints
    has_run = {"whether there is a run in --workdir": str(resuming)}
    scored = {"what is scored at the end": inputs.evaluation.final_fingerprint} if inputs.evaluation else {}
    processes.agree({"the config": identity(config), **prints, **scored, "--workdir": workdir, **has_run})
    with processes.together():
        if resuming:
            check_same_run(folder, config, prints)
        elif processes.is_first():
            create(folder, config, prints, model, inputs.tokenizer)
    with processes.together():
        wait_for(folder)

    mesh = data_mesh(inputs.devices)
    settings = make_settings(config, max(total_steps, 1))  # the horizon that the learning rate is divided by
    graph, _ = build(model.config, HEADS[config.model.mlp].trained, jnp.dtype(config.train.dtype))
    state = init_state(initial_params(config, model), settings)
    state = replicate(state, replicated(mesh))
    checkpoints = Checkpoints(folder, config.checkpoint.keep_every)
    saved = checkpoints.resume(state)
    resumed = None if saved is None else int(saved.step)
    if saved is not None:
        state = saved
        processes.say(f"resuming at step {resumed} of {total_steps}")

    encode, analyse = make_scored_encode(config, inputs, mesh), make_analyse(config, inputs, mesh)
    with processes.together():
        metrics = Metrics(folder, resumed) if processes.is_first() else None
    with closing_all([checkpoints] if metrics is None else [metrics, checkpoints]):
        batches = Batches(inputs.corpus, config.train.batch_size, config.seed)
        recipe = make_recipe(config, inputs.num_columns, inputs.language_model)
        updates = Updates(graph, recipe, mesh, batches, total_steps, unpad=config.train.unpad)
        evaluation = inputs.evaluation
        loop = Loop(
            config, settings, total_steps, encode, evaluation, analyse, checkpoints, metrics, preemption, trace_folder
        )
        state = loop.run(updates, batches, split_over_examples(mesh), state)
        best, params = checkpoints.restore_best(state.params)
        report(folder, encode, params, best, evaluation, config.seed)


def make_scored_encode(config: config_dict.ConfigDict, inputs: Inputs, mesh: Mesh) -> Encode:
    """encode(params, sentences) as everyone who loads the model will encode: in float32, without dropout."""
    return make_encode(
        build(inputs.model.config, HEADS[config.model.mlp].trained)[0],
        inputs.tokenizer,
        pooler=config.model.pooler,
        use_head=HEADS[config.model.mlp].scored,
        max_length=inputs.model.max_length,
        sharding=split_over_examples(mesh),
    )


def make_analyse(config: config_dict.ConfigDict, inputs: Inputs, mesh: Mesh) -> Analyse | None:
    """analyse(encode, params): numbers of the last layer, on the same sentences every time; None where it is off."""
    if inputs.analysis is None:
        return None
    sample, model = inputs.analysis, inputs.model
    tokens = TokenEncoder(
        build(model.config, HEADS[config.model.mlp].trained)[0],
        {},
        inputs.tokenizer,
        model.max_length,
        sharding=split_over_examples(mesh),
        last_only=True,
    )
    found = survey(tokens, sample.sentences, Protocol(), "config.analysis.data")

    def analyse(encode: sts.Encode, params: Params) -> dict[str, float]:
        return measure_last_layer(encode, dataclasses.replace(tokens, params=params), found, sample)

    return analyse


def report(folder: Folder, encode: Encode, params: Params, best: int, evaluation: Evaluation | None, seed: int) -> None:
    """Scores the best checkpoint on the test sets, prints the paper's table and writes `result.json`."""
    if evaluation is None:
        processes.say(f"done; the last checkpoint (step {best}) is in {folder}")
        return
    result = final_scores(encode, params, evaluation, seed)
    if processes.is_first():
        write_atomically(folder / "result.json", json.dumps(result, indent=2) + "\n")
    kind = "test" if evaluation.test else "development"
    behind = f" behind {evaluation.postprocess.method}" if evaluation.postprocess else ""
    processes.say(f"best checkpoint: step {best}; {kind} scores{behind} (Spearman × 100, all):")
    processes.say(sts.table({task: result[task] for task in evaluation.final}, evaluation.missing))
    if evaluation.transfer:
        processes.say(f"transfer{behind} (accuracy):")
        processes.say(transfer.table(result["transfer"], evaluation.transfer_missing))


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
