"""Runs that differ only in numbers and seeds, trained together in one program: `jax.vmap` over whole runs."""

import dataclasses
import functools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import config_dict
from tqdm import tqdm

from simcse_jax.config.fields import flatten, trains
from simcse_jax.data.batches import Batches
from simcse_jax.devices.mesh import AXIS, data_mesh, replicated
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted, UserError
from simcse_jax.evaluation import sts
from simcse_jax.models.head import HEADS
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.metrics import Metrics
from simcse_jax.runs.state import TrainState, initial_params
from simcse_jax.runs.workdir import check_same_run, create, is_workdir
from simcse_jax.storage import write_atomically
from simcse_jax.training import run as run_lib
from simcse_jax.training.inputs import Inputs, check_columns, read_inputs
from simcse_jax.training.loop import Encode, closing_all
from simcse_jax.training.loss import Settings
from simcse_jax.training.optimizer import init_state
from simcse_jax.training.recipe import is_number, make_recipe, make_settings
from simcse_jax.training.step import make_steps

# Numbers that the compiled step takes as its settings (beside those of the objectives), so runs may differ in them.
NUMBERS = ("model.dropout", "views.noise", "train.learning_rate", "train.weight_decay", "train.max_grad_norm", "seed")
BEST = "best."  # in a checkpoint, before the names of the parameters that scored best so far


def group_key(config: config_dict.ConfigDict) -> str | None:
    """Runs of the same key can be trained together; None: only alone, since its data depends on its seed.

    What trains nothing is alone too, and what keeps checkpoints or is analysed on its way.
    """
    data = config.data
    if config.checkpoint.keep_every or config.analysis.every:
        return None
    if not trains(config) or data.augment.name or data.subsample or data.positives == "next_3_sentences":
        return None
    fields = flatten(config)
    for name in list(fields):
        _, _, field = name.rpartition(".")
        objective = name.startswith("objective.") and is_number(*name.split(".")[1:])
        if name in NUMBERS or (objective and field != "weight"):
            del fields[name]
        elif objective:
            fields[name] = fields[name] > 0  # which terms there are is part of the program
    return json.dumps(sorted(fields.items()), default=str)


def train_together(configs: Sequence[config_dict.ConfigDict], workdirs: Sequence[Path], folder: Path) -> list[str]:
    """Trains R runs of one `group_key` in one compiled step, each as it would be alone, to the rounding of sums.

    Writes each one's `run.json`, `metrics.jsonl` and `result.json`. There are no checkpoints of single runs: a run that
    is worth keeping is trained again alone. Those of the group hold all states, and the best parameters so far. A run
    whose loss or embeddings are not finite any more is given up; the others go on.

    Args:
      configs: R configs.
      workdirs: as many folders.
      folder: for the group's checkpoints, which are resumed from, and removed when all is done.

    Returns:
      What went wrong, a line a run that was given up.

    Raises:
      UserError: for what train_and_evaluate raises one.
    """
    config = configs[0]
    inputs = read_inputs(config)
    for each, workdir in zip(configs, workdirs, strict=True):
        check_columns(each, inputs.num_columns)
        if is_workdir(workdir):
            check_same_run(workdir, each, inputs.fingerprints)
        else:
            create(workdir, each, inputs.fingerprints, inputs.model, inputs.tokenizer)

    mesh = data_mesh(inputs.devices)
    settings = [make_settings(each, inputs.total_steps) for each in configs]
    params = [initial_params(each, inputs.model) for each in configs]
    states = [init_state(*both) for both in zip(params, settings, strict=True)]
    state = TrainState(states[0].step, *_stack([one[1:] for one in states]))
    state = jax.device_put(state, replicated(mesh))
    del params, states
    checkpoints = Checkpoints(folder)
    best = jax.tree.map(jnp.copy, state.params)
    saved = checkpoints.resume(_with_best(state, best))
    first = None if saved is None else int(saved.step)
    if saved is not None:
        state, best = _without_best(saved)
        print(f"resuming at step {first} of {inputs.total_steps}", flush=True)

    preemption = Preemption()
    metrics = [Metrics(workdir, first) for workdir in workdirs]
    runs = [
        _Run(f"{workdir.parent.name} ({workdir.name})", each.seed, own, _best_score(workdir))
        for each, workdir, own in zip(configs, workdirs, metrics, strict=True)
    ]
    with closing_all([preemption, *metrics, checkpoints]):
        group = _Group(config, inputs, run_lib.make_scored_encode(config, inputs, mesh), runs, best)
        group.train(mesh, [each.seed for each in configs], _stack(settings), state, checkpoints, preemption)
        results = group.final_scores()
    for workdir, result in zip(workdirs, results, strict=True):
        if result is not None:
            write_atomically(workdir / "result.json", json.dumps(result, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    return [f"{run.name}: {run.problem}" for run in runs if run.problem]


@dataclasses.dataclass
class _Run:
    """What is kept of each run beside its arrays."""

    name: str
    seed: int
    metrics: Metrics
    best: float  # score so far
    problem: str = ""  # why it was given up


@dataclasses.dataclass
class _Group:
    """The loop over steps, and its book-keeping."""

    config: config_dict.ConfigDict
    inputs: Inputs
    encode: Encode
    runs: list[_Run]
    best: Params  # (R, …), of the best score so far

    def train(
        self,
        mesh: Mesh,
        seeds: Sequence[int],
        settings: Settings,
        state: TrainState,
        checkpoints: Checkpoints,
        preemption: Preemption,
    ) -> None:
        """All updates that are left."""
        config, inputs = self.config, self.inputs
        graph, _ = build(inputs.model.config, HEADS[config.model.mlp].trained, jnp.dtype(config.train.dtype))
        batches = [Batches(inputs.corpus, config.train.batch_size, seed) for seed in seeds]
        recipe = make_recipe(config, inputs.num_columns, inputs.language_model)
        if config.train.unpad:  # one program for all runs, with places for the longest batch of any
            largest = [one.sizes(inputs.total_steps, mesh.size, recipe.chunk_size)[0][-1] for one in batches]
            if all(largest):
                recipe = recipe._replace(most_tokens=tuple(np.max(largest, axis=0).tolist()))
        update = make_steps(graph, recipe, mesh)
        settings = jax.device_put(settings, replicated(mesh))
        sharding = NamedSharding(mesh, PartitionSpec(None, AXIS))
        first, total = int(state.step), inputs.total_steps
        if first == 0:
            self.evaluate(0, state.params)
        for number in tqdm(range(first + 1, total + 1), initial=first, total=total, unit="step"):
            batch = jax.device_put(_stack([one[number - 1] for one in batches]), sharding)
            state, values = update(state, batch, settings)
            last = number == total
            due = last or number % config.eval.every == 0
            if number == 1 or due or number % config.train.log_every == 0:
                self.log(number, values)
            if due:
                self.evaluate(number, state.params)
            preempted = preemption.reached(number) and not last
            if due or preempted:
                for run in self.runs:
                    run.metrics.flush()
                checkpoints.save(_with_best(state, self.best), None)
            if preempted:
                checkpoints.close()
                raise Preempted(f"SIGTERM: saved at step {number}; the same command goes on from there")

    def log(self, number: int, values: dict[str, jax.Array]) -> None:
        """Writes each run's line; gives up those that are not finite."""
        values = {name: np.asarray(value) for name, value in values.items()}
        for row, run in enumerate(self.runs):
            line = {name: float(value[row]) for name, value in values.items()}
            if not all(map(np.isfinite, line.values())):
                self.give_up(run, f"step {number}: the loss is {line['loss']}")
            if not run.problem:
                run.metrics.write(number, line)

    def evaluate(self, number: int, params: Params) -> None:
        """Scores the development pairs with each run's parameters, and keeps those that are the best."""
        for row, run in enumerate(self.runs):
            if run.problem:
                continue
            own = jax.tree.map(lambda x: x[row], params)
            try:
                found = sts.evaluate(functools.partial(self.encode, own), self.inputs.evaluation.development)
            except UserError as error:  # the embeddings are not finite
                self.give_up(run, f"step {number}: {error}")
                continue
            score = next(iter(found.values()))["spearman"]
            run.metrics.write(number, {self.inputs.evaluation.name: score})
            tqdm.write(f"step {number}: {run.name} {score:.2f}")
            if number and score >= run.best:  # of equals the last one, as a run alone has it
                run.best = score
                for name in self.best:
                    self.best[name] = self.best[name].at[row].set(own[name])

    def give_up(self, run: _Run, problem: str) -> None:
        """Says it once."""
        if not run.problem:
            run.problem = problem
            tqdm.write(f"{run.name}: {problem}; the others go on")

    def final_scores(self) -> list[dict[str, Any] | None]:
        """What `result.json` is to hold, None for a run that was given up."""
        results: list[dict[str, Any] | None] = [None] * len(self.runs)
        for row, run in enumerate(self.runs):
            if run.problem:
                continue
            own = jax.tree.map(lambda x: x[row], self.best)
            try:
                results[row] = run_lib.final_scores(self.encode, own, self.inputs.evaluation, run.seed)
            except UserError as error:  # no post-processing can be fit on its embeddings
                self.give_up(run, str(error))
        return results


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _with_best(state: TrainState, best: dict[str, jax.Array]) -> TrainState:
    return state._replace(params=state.params | {BEST + name: value for name, value in best.items()})


def _without_best(state: TrainState) -> tuple[TrainState, dict[str, jax.Array]]:
    best = {name.removeprefix(BEST): value for name, value in state.params.items() if name.startswith(BEST)}
    return state._replace(params={name: state.params[name] for name in best}), best


def _best_score(workdir: Path) -> float:
    """The best score behind step 0 so far: `Metrics` has just cut the file off at the resumed step."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text("utf-8").splitlines()]
    scores = [line[name] for line in lines if line["step"] for name in line if name.startswith("eval/")]
    return max(scores, default=-np.inf)
