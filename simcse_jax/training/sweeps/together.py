"""Runs that differ only in numbers and seeds, trained together in one program: `jax.vmap` over whole runs."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simcse_jax.config.checks import ineffective
from simcse_jax.config.fields import fields_of, flatten, numbers_of_step, trains
from simcse_jax.config.sections import Section
from simcse_jax.config.source_fields import ONE_SOURCE
from simcse_jax.data.corpora import AnyBatches
from simcse_jax.devices.mesh import AXIS
from simcse_jax.devices.parts import distribute, whole
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import UserError
from simcse_jax.evaluation.evaluator import evaluate_all
from simcse_jax.field import read_milestones
from simcse_jax.host import progress
from simcse_jax.host.locks import held
from simcse_jax.models.parameters import Params
from simcse_jax.models.platforms import tracing_for
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters.opening import report_to_all
from simcse_jax.runs.run_files import BEST_STEP
from simcse_jax.runs.state import TrainState, frozen_params
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.columns import check_corpus
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.loop import closing_all, train
from simcse_jax.training.loss import Batch, Recipe, Settings
from simcse_jax.training.patience import Patience
from simcse_jax.training.run import final_scores, resume
from simcse_jax.training.schedule import Due
from simcse_jax.training.setup import Setup, make_setup
from simcse_jax.training.step import Update, make_steps

BEST = "best."  # in a checkpoint, before the names of the parameters that scored best so far


def draws_data(config: Section) -> bool:
    """Whether the training data are other ones with another seed."""
    data = config.data
    return bool(data.augment.name or data.subsample or data.positives in ("next_3_sentences", "spans"))


def group_key(config: Section) -> str | None:
    """Runs of the same key can be trained together; None: only alone, since its data depends on its seed.

    A run that trains nothing, keeps checkpoints, is analyzed during training, scores two encoders or has batches of one
    source each is alone too.
    """
    data = config.data
    if config.checkpoint.keep_every or config.analysis.every or config.eval.encoder == "better":
        return None
    if data.batching == ONE_SOURCE and "," in data.train:  # a step's source depends on the seed
        return None
    if not trains(config) or draws_data(config):
        return None
    fields = flatten(config)
    for name in numbers_of_step(fields_of(config)):
        if name.endswith(".weight"):
            fields[name] = fields[name] > 0  # which terms there are is part of the program
        elif name == "train.milestones":
            fields[name] = len(read_milestones(fields[name]))  # and so is the number of numbers
        elif name == "views.positive_dropout":
            fields[name] = fields[name] >= 0  # whether positives have a rate of their own, too
        elif name == "model.attention_dropout":
            fields[name] = float(np.sign(fields[name]))  # and attention, and whether it has masks
        elif name == "model.lora.dropout":
            fields[name] = fields[name] > 0  # and whether LoRA has masks
        else:
            del fields[name]
    return json.dumps(sorted(fields.items()), default=str)


def train_together(configs: Sequence[Section], workdirs: Sequence[Path], folder: Path) -> list[str]:
    """Trains R runs of one `group_key` in one compiled step, each as it would be alone, to the rounding of sums.

    Writes each one's `run.json`, `metrics.jsonl` and `result.json`. There are no checkpoints of single runs: a run that
    is worth keeping is trained again alone. Those of the group hold all states, and the best parameters so far. A run
    whose loss or embeddings are not finite any more is given up; the others continue. One whose patience is over has
    ended: its best parameters and its metrics stay as they are, while its row is computed as long as others continue.

    Args:
      configs: R configs.
      workdirs: as many folders.
      folder: for the group's checkpoints, which are resumed from, and removed when all is done.

    Returns:
      A line for each run that was given up.

    Raises:
      UserError: in the cases of train_and_evaluate.
    """
    with contextlib.ExitStack() as jobs:
        for workdir in workdirs:
            jobs.enter_context(held(workdir))
        return _train_together(configs, workdirs, folder)


def _train_together(configs: Sequence[Section], workdirs: Sequence[Path], folder: Path) -> list[str]:
    for field in dict.fromkeys(field for config in configs for field in ineffective(config)):
        print(f"config.{field} has no effect with the other fields", flush=True)
    if configs[0].eval.against_start:
        raise UserError("config.eval.against_start: runs trained together keep no start; set sweep.vectorize=False")
    inputs = read_inputs(configs[0])
    folders = [Workdir(workdir) for workdir in workdirs]
    if not all(workdir.exists for workdir in folders):  # one was removed, to be run again, perhaps of other data
        shutil.rmtree(folder, ignore_errors=True)
    for config, workdir in zip(configs, folders, strict=True):
        assert inputs.corpus is not None  # it trains
        check_corpus(config, inputs.corpus)
        if workdir.exists:
            workdir.check_same_run(config, inputs.fingerprints)
        else:
            frozen = frozen_params(config.model, inputs.model)
            prompts = inputs.prompts
            given = (inputs.fingerprints, inputs.model, inputs.tokenizer, inputs.num_examples)
            workdir.create(config, *given, frozen=frozen, prompts=prompts)

    setup = make_setup(configs[0], inputs)
    state = first_state(setup, configs)
    checkpoints = Checkpoints(folder)
    best = jax.tree.map(jnp.copy, state.params)
    state, resumed = resume(checkpoints, _with_best(state, best), inputs.total_steps)
    state, best = _without_best(state)

    with contextlib.closing(Preemption()) as preemption:
        if resumed is not None:
            preemption.resumed(resumed)
        else:
            for workdir in folders:
                workdir.drop_result()
        metrics = [workdir.metrics(resumed) for workdir in folders]
        with closing_all([*metrics, checkpoints]):
            for own, config, workdir in zip(metrics, configs, folders, strict=True):
                report_to_all(own, config, workdir.path, resumed)
            members = [
                Member(
                    f"{workdir.path.parent.name} ({workdir.path.name})",
                    config.seed,
                    own,
                    _best(workdir)[0],
                    patience=Patience(config.train.patience).replay(workdir.read_metrics()),
                )
                for config, workdir, own in zip(configs, folders, metrics, strict=True)
            ]
            batches = [setup.batches(config.seed) for config in configs]
            settings = jax.device_put(_stack([setup.settings(config) for config in configs]), setup.replicated)
            update = make_steps(setup.graph, shared_recipe(setup, batches), setup.mesh)
            group = Group(setup, batches, settings, update, checkpoints, members, best)
            state = train(group, setup.schedule, state, preemption)
            group.leave_out_broken(state.params)  # also those that were given up before a kill
            for own, workdir, result in zip(metrics, folders, group.final_scores(), strict=True):
                own.flush()
                if result is not None:
                    result |= {BEST_STEP: _best(workdir)[1]}
                    workdir.write_result(result)
                    own.finish(result)
    shutil.rmtree(folder, ignore_errors=True)
    return [f"{member.name}: {member.problem}" for member in members if member.problem]


def first_state(setup: Setup, configs: Sequence[Section]) -> TrainState:
    """What all runs start from; `step` is common to them, all other arrays have an axis of runs."""
    states = [setup.state(config) for config in configs]
    state = TrainState(states[0].step, *_stack([state[1:] for state in states]))
    return distribute(state, setup.mesh, runs=True)


def shared_recipe(setup: Setup, batches: Sequence[AnyBatches]) -> Recipe:
    """One program for all runs, with places for the longest batch of any."""
    if not setup.config.train.unpad:
        return setup.recipe
    devices, chunk_size = setup.mesh.size, setup.recipe.chunk_size
    sizes = [each.sizes(setup.schedule.total, devices, chunk_size).tokens for each in batches]
    largest = [tokens[-1] for tokens in sizes]
    if not all(largest):
        if any(tokens[0] for tokens in sizes):  # as of a prepared corpus, whose longest batch is not known
            progress.write("these runs are trained together with all padding, as with train.unpad=False")
        return setup.recipe
    return setup.recipe._replace(most_tokens=tuple(np.max(largest, axis=0).tolist()))


@dataclasses.dataclass
class Member:
    """What is kept of each run in addition to its arrays."""

    name: str
    seed: int
    metrics: Metrics
    best: float  # score so far
    problem: str = ""  # why it was given up
    patience: Patience = dataclasses.field(default_factory=lambda: Patience(0))

    @property
    def continues(self) -> bool:
        """Whether its steps still count: it was not given up, and has not ended."""
        return not self.problem and not self.patience.is_over


@dataclasses.dataclass
class Group:
    """Runs that are trained together, in the loop."""

    setup: Setup
    batches: list[AnyBatches]
    settings: Settings  # (R,) of each
    step: Update
    checkpoints: Checkpoints
    members: list[Member]
    best: Params  # (R, …), of the best score so far
    values: dict[str, jax.Array] = dataclasses.field(default_factory=dict)  # (R,) of the last step's metrics

    def read(self, step: int) -> Batch:
        """The batches of an update, stacked."""
        sharding = NamedSharding(self.setup.mesh, PartitionSpec(None, AXIS))
        return jax.device_put(_stack([each[step] for each in self.batches]), sharding)

    def compile(self, step: int, state: TrainState, batch: Batch) -> None:
        """Nothing: there is one program, which the first call compiles."""

    def update(self, step: int, state: TrainState, batch: Batch) -> TrainState:
        """Dispatches an update of all runs."""
        with tracing_for(self.setup.mesh.devices.flat[0].platform):
            state, self.values = self.step(state, batch, self.settings, self.setup.frozen)
        return state

    @property
    def ended(self) -> bool:
        """Whether no run continues."""
        return not any(member.continues for member in self.members)

    @property
    def loss(self) -> jax.Array:
        """(R,) of the update dispatched last, still being computed."""
        return self.values["loss"]

    def log(self, number: int) -> None:
        """Writes each run's line."""
        for member, line in self.check(number):
            member.metrics.write(number, line)

    def check(self, number: int) -> list[tuple[Member, dict[str, float]]]:
        """The runs that continue, with the metrics of their last step; those that are not finite are given up."""
        values = {name: np.asarray(value) for name, value in self.values.items()}
        lines = [{name: float(value[row]) for name, value in values.items()} for row in range(len(self.members))]
        for member, line in zip(self.members, lines, strict=True):
            if member.continues and not all(map(np.isfinite, line.values())):
                self.give_up(member, f"step {number}: the loss is {line['loss']}")
        return [(member, line) for member, line in zip(self.members, lines, strict=True) if member.continues]

    def look(self, number: int, state: TrainState, due: Due, preempted: bool) -> None:
        """Scores and saves what is due."""
        if due.score and number and not due.log:
            self.log(number)  # a score stands next to the loss
        self.check(number)
        if due.score:
            self.score(number, state.params)
        if due.save or preempted:
            for member in self.members:
                member.metrics.flush()
            self.checkpoints.save(_with_best(state, self.best), None)
        if preempted:
            self.checkpoints.close()

    def wait(self) -> None:
        """Waits until everything is saved."""
        self.checkpoints.wait()

    def score(self, number: int, params: Params) -> None:
        """Scores the development pairs with each run's parameters, and keeps those that are the best."""
        for row, member in enumerate(self.members):
            if not member.continues:
                continue
            own = jax.tree.map(lambda x: x[row], params)
            try:
                embed = self.setup.embed.with_params(self.setup.model(whole(own, self.setup.mesh)))
                numbers = evaluate_all(embed.with_progress, self.setup.scoring)
            except UserError as error:  # the embeddings are not finite
                self.give_up(member, f"step {number}: {error}")
                continue
            score = next(iter(numbers.values()))
            member.patience.add(number, score)
            member.metrics.write(number, numbers | member.patience.line)
            progress.write(f"step {number}: {member.name} {score:.2f}")
            if member.patience.is_over:
                progress.write(f"{member.name}: {member.patience}; the others continue")
            if number and score >= member.best:  # of equals the last one, as a run alone has it
                member.best = score
                for name in self.best:
                    self.best[name] = self.best[name].at[row].set(own[name])

    def leave_out_broken(self, params: Params) -> None:
        """Gives up the runs whose last parameters (R, …) are not finite."""
        finite = [np.isfinite(np.asarray(x)).reshape(len(self.members), -1).all(axis=1) for x in params.values()]
        for member, *sound in zip(self.members, *finite, strict=True):
            if member.continues and not all(sound):
                self.give_up(member, "its parameters are not finite")

    def give_up(self, member: Member, problem: str) -> None:
        """Says it once."""
        if not member.problem:
            member.problem = problem
            progress.write(f"{member.name}: {problem}; the others continue")

    def final_scores(self) -> list[dict[str, Any] | None]:
        """What `result.json` is to hold, None for a run that was given up."""
        results: list[dict[str, Any] | None] = [None] * len(self.members)
        for row, member in enumerate(self.members):
            if member.problem:
                continue
            own = jax.tree.map(lambda x: x[row], self.best)
            try:
                with progress.doing(member.name):
                    embed = self.setup.embed.with_params(self.setup.model(whole(own, self.setup.mesh)))
                    scores = final_scores(self.setup.inputs, embed, member.seed, {})
                    results[row] = scores | member.patience.result
            except UserError as error:  # no post-processing can be fit on its embeddings
                self.give_up(member, str(error))
        return results


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _with_best(state: TrainState, best: Params) -> TrainState:
    return state._replace(params=state.params | {BEST + name: value for name, value in best.items()})


def _without_best(state: TrainState) -> tuple[TrainState, Params]:
    best = {name.removeprefix(BEST): value for name, value in state.params.items() if name.startswith(BEST)}
    return state._replace(params={name: state.params[name] for name in best}), best


def _best(workdir: Workdir) -> tuple[float, int]:
    """The best score after step 0 so far, and its step: the metrics have just been cut off at the resumed step."""
    lines = workdir.read_metrics()
    scores = [(line[name], line["step"]) for line in lines if line["step"] for name in line if name.startswith("eval/")]
    return max(scores, default=(-np.inf, 0))  # of equals the last one
