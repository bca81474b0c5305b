"""Runs that differ only in numbers and seeds, trained together in one program: `jax.vmap` over whole runs."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict
from tqdm import tqdm

from simcse_jax import step as step_lib
from simcse_jax import train
from simcse_jax import workdir as workdir_lib
from simcse_jax.checkpoint import Checkpoints
from simcse_jax.config import flatten
from simcse_jax.data.batches import Batches, steps_per_epoch
from simcse_jax.encoding import make_encode
from simcse_jax.errors import Preempted, UserError
from simcse_jax.evaluation import sts
from simcse_jax.loading import load_model
from simcse_jax.models import huggingface
from simcse_jax.models.tokenizer import Tokenizer
from simcse_jax.preemption import Preemption
from simcse_jax.storage import write_atomically

# Numbers that the compiled step takes as its settings (beside those of the objectives), so runs may differ in them.
NUMBERS = ("model.dropout", "views.noise", "train.learning_rate", "train.weight_decay", "train.max_grad_norm", "seed")
BEST = "best."  # in a checkpoint, before the names of the parameters that scored best so far


def group_key(config: config_dict.ConfigDict) -> str | None:
    """Runs of the same key can be trained together; None: only alone, since its data depends on its seed."""
    data = config.data
    if data.augment.name or data.subsample or data.positives == "next_3_sentences":
        return None
    fields = flatten(config)
    for name in list(fields):
        _, _, field = name.rpartition(".")
        objective = name.startswith("objective.") and train.is_number(*name.split(".")[1:])
        if name in NUMBERS or (objective and field != "weight"):
            del fields[name]
        elif objective:
            fields[name] = fields[name] > 0  # which terms there are is part of the program
    return json.dumps(sorted(fields.items()), default=str)


def train_together(configs: Sequence[config_dict.ConfigDict], workdirs: Sequence[Path]) -> None:
    """Trains R runs of one `group_key` in one compiled step, each as it would be alone.

    Writes each one's `run.json`, `metrics.jsonl` and `result.json`. There are no checkpoints of single runs: a run that
    is worth keeping is trained again alone. The group's own stand in the first workdir's `together-…/` until all
    is done, and are resumed from; they hold all states, and the best parameters so far.

    Args:
      configs: R configs.
      workdirs: as many folders.

    Raises:
      UserError: for what train_and_evaluate raises one.
    """
    config, runs = configs[0], len(configs)
    if config.parallel.processes != 1:
        raise UserError("config.sweep.vectorize: only in one process; set parallel.processes=1")
    devices = train.choose_devices(config)
    evaluation = train.read_evaluation(config)
    model = load_model(config.model.init_from, config.model.num_layers)
    tokenizer = Tokenizer(model.folder, model.config)
    corpus = train.read_corpus(config, model, tokenizer)
    batch_size = config.train.batch_size
    total_steps = config.train.max_steps or config.train.epochs * steps_per_epoch(len(corpus.input_ids), batch_size)
    fingerprints = train.fingerprints(corpus, model, evaluation)
    for each, workdir in zip(configs, workdirs, strict=True):
        if workdir_lib.is_workdir(workdir):
            workdir_lib.check_same_run(workdir, each, fingerprints)
        else:
            workdir_lib.create(workdir, each, fingerprints, model, tokenizer)

    mesh = step_lib.data_mesh(devices)
    graph, _ = huggingface.build(model.config, config.model.mlp != "none", jnp.dtype(config.train.dtype))
    settings = [train.make_settings(each, total_steps) for each in configs]
    states = [
        step_lib.init_state(train.initial_params(each, model), own) for each, own in zip(configs, settings, strict=True)
    ]
    state = step_lib.TrainState(states[0].step, *_stack([one[1:] for one in states]))
    state = jax.device_put(state, step_lib.replicated(mesh))
    del states
    settings = jax.device_put(_stack(settings), step_lib.replicated(mesh))
    recipe = train.make_recipe(config, corpus.input_ids.shape[1], train.read_masking(config, model))
    update = step_lib.make_steps(graph, recipe, mesh)
    encode = make_encode(
        huggingface.build(model.config, config.model.mlp != "none")[0],
        tokenizer,
        pooler=config.model.pooler,
        use_head=config.model.mlp == "always",
        max_length=model.max_length,
        sharding=step_lib.split_over_examples(mesh),
    )
    batches = [Batches(corpus, batch_size, each.seed) for each in configs]
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, step_lib.AXIS))

    together = workdirs[0] / f"together-{hashlib.sha256(' '.join(map(str, workdirs)).encode()).hexdigest()[:8]}"
    checkpoints = Checkpoints(together)
    best = jax.tree.map(jnp.copy, state.params)
    saved = checkpoints.resume(_with_best(state, best))
    first = None if saved is None else int(saved.step)
    if saved is not None:
        state, best = _without_best(saved)
        print(f"resuming at step {first} of {total_steps}", flush=True)
    metrics = [workdir_lib.Metrics(workdir, first) for workdir in workdirs]
    scores = [_best_score(workdir, evaluation.name) for workdir in workdirs]

    def evaluate(number: int) -> None:
        for run in range(runs):
            params = jax.tree.map(lambda x: x[run], state.params)
            found = sts.evaluate(lambda sentences: encode(params, sentences), evaluation.development)
            score = next(iter(found.values()))["spearman"]
            metrics[run].write(number, {evaluation.name: score})
            tqdm.write(f"step {number}: {workdirs[run].parent.name} {workdirs[run].name} {score:.2f}")
            if number and not score <= scores[run]:
                scores[run] = score
                for name in best:
                    best[name] = best[name].at[run].set(params[name])

    preemption = Preemption()
    with train.closing_all([*metrics, checkpoints, preemption]):
        if first is None:
            evaluate(0)
        for number in tqdm(
            range((first or 0) + 1, total_steps + 1), initial=first or 0, total=total_steps, unit="step"
        ):
            batch = jax.device_put(_stack([one[number - 1] for one in batches]), sharding)
            state, values = update(state, batch, settings)
            last = number == total_steps
            due = last or number % config.eval.every == 0
            if number == 1 or due or number % config.train.log_every == 0:
                values = {name: np.asarray(value) for name, value in values.items()}
                for run in range(runs):
                    line = {name: float(value[run]) for name, value in values.items()}
                    if not all(np.isfinite(value) for value in line.values()):
                        raise UserError(
                            f"step {number}: {workdirs[run]}: the loss is {line['loss']}; leave this variant out with "
                            "sweep.only, or train one at a time with sweep.vectorize=False"
                        )
                    metrics[run].write(number, line)
            if due:
                evaluate(number)
            preempted = preemption.reached(number) and not last
            if due or preempted:
                for one in metrics:
                    one.flush()
                checkpoints.save(_with_best(state, best), None)
            if preempted:
                checkpoints.close()
                raise Preempted(f"SIGTERM: saved at step {number}; the same command goes on from there")

    for run, workdir in enumerate(workdirs):
        params = jax.tree.map(lambda x: x[run], best)
        tasks = evaluation.test or evaluation.development
        results = sts.evaluate(lambda sentences: encode(params, sentences), tasks)
        result = {**results, **sts.average(results, evaluation.missing if evaluation.test else [])}
        write_atomically(workdir / "result.json", json.dumps(result, indent=2) + "\n")
    shutil.rmtree(together, ignore_errors=True)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _with_best(state: step_lib.TrainState, best: dict[str, jax.Array]) -> step_lib.TrainState:
    return state._replace(params=state.params | {BEST + name: value for name, value in best.items()})


def _without_best(state: step_lib.TrainState) -> tuple[step_lib.TrainState, dict[str, jax.Array]]:
    best = {name.removeprefix(BEST): value for name, value in state.params.items() if name.startswith(BEST)}
    return state._replace(params={name: state.params[name] for name in best}), best


def _best_score(workdir: Path, name: str) -> float:
    """The best score behind step 0 so far: `Metrics` has just cut the file off at the resumed step."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text("utf-8").splitlines()]
    return max((line[name] for line in lines if name in line and line["step"]), default=-np.inf)
