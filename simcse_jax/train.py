"""The run: build, loop, evaluate, keep the best."""

import contextlib
import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import config_dict
from tqdm import tqdm

from simcse_jax import parallel
from simcse_jax import step as step_lib
from simcse_jax import workdir as workdir_lib
from simcse_jax.checkpoint import Checkpoints
from simcse_jax.config import default_config, validate
from simcse_jax.data.augment import augment
from simcse_jax.data.batches import Batches, Corpus, sha256, steps_per_epoch, tokenize
from simcse_jax.data.sources import Examples, read_examples
from simcse_jax.encoding import make_encode
from simcse_jax.errors import Preempted, UserError
from simcse_jax.evaluation import sts
from simcse_jax.loading import choose_pooler, load_model
from simcse_jax.models import huggingface, parameters
from simcse_jax.models.language_model import fresh_head
from simcse_jax.models.parameters import Params
from simcse_jax.models.pretrained import Pretrained
from simcse_jax.models.tokenizer import Tokenizer, special_tokens
from simcse_jax.objectives.total import Objective
from simcse_jax.preemption import Preemption
from simcse_jax.storage import Folder, as_path, write_atomically
from simcse_jax.views import plan

# Folded into the seed for fresh weights, so that they share no key with the masks.
HEAD_STREAM, SECOND_HEAD_STREAM, LANGUAGE_MODEL_STREAM, CLASSIFIER_STREAM = range(0x68656164, 0x68656168)


Encode = Callable[[Params, Sequence[str]], np.ndarray]


class Evaluation(NamedTuple):
    """What is scored: pairs to choose the best checkpoint by, and test tasks for the end."""

    name: str
    development: dict[str, sts.Pairs]
    test: dict[str, sts.Pairs]
    missing: list[str]

    @property
    def fingerprint(self) -> str:
        """Of the development pairs: the best checkpoint depends on them."""
        parts = [np.array([*pairs.first, *pairs.second]) for pairs in self.development.values()]
        return sha256(*parts, *(pairs.gold for pairs in self.development.values()))


def train_and_evaluate(config: config_dict.ConfigDict, workdir: str) -> None:
    """Trains as `config` says, in `workdir`, where it resumes if it was there before.

    Raises:
      UserError: for a mistake in the config, the data or the workdir; nothing is written before all is checked.
    """
    validate(config)
    parallel.initialize(config.parallel)
    with contextlib.closing(Preemption()) as preemption:
        _train_and_evaluate(config, workdir, preemption)


def _train_and_evaluate(config: config_dict.ConfigDict, workdir: str, preemption: Preemption) -> None:
    with parallel.together():
        folder = as_path(workdir)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--workdir {workdir}: is a file")
        devices = choose_devices(config)
        evaluation = read_evaluation(config)
        model = load_model(config.model.init_from, config.model.num_layers)
        tokenizer = Tokenizer(model.folder, model.config)
        corpus = read_corpus(config, model, tokenizer)
        masking = read_masking(config, model)
    total_steps = config.train.max_steps or config.train.epochs * steps_per_epoch(
        len(corpus.input_ids), config.train.batch_size
    )

    resuming = workdir_lib.is_workdir(folder)
    prints = fingerprints(corpus, model, evaluation)
    has_run = {"whether there is a run in --workdir": str(resuming)}
    parallel.agree({"the config": workdir_lib.identity(config), **prints, "--workdir": workdir, **has_run})
    with parallel.together():
        if resuming:
            workdir_lib.check_same_run(folder, config, prints)
        elif parallel.is_first():
            workdir_lib.create(folder, config, prints, model, tokenizer)
    with parallel.together():
        workdir_lib.wait_for(folder)

    mesh = step_lib.data_mesh(devices)
    settings = make_settings(config, total_steps)
    with_head = config.model.mlp != "none"
    graph, _ = huggingface.build(model.config, with_head, jnp.dtype(config.train.dtype))
    state = step_lib.init_state(initial_params(config, model), settings)
    state = parallel.replicate(state, step_lib.replicated(mesh))
    checkpoints = Checkpoints(folder, config.checkpoint.keep_every)
    saved = checkpoints.resume(state)
    resumed = None if saved is None else int(saved.step)
    if saved is not None:
        state = saved
        parallel.say(f"resuming at step {resumed} of {total_steps}")

    encode = make_encode(
        huggingface.build(model.config, with_head)[0],  # in float32, as everyone who loads the model will encode
        tokenizer,
        pooler=config.model.pooler,
        use_head=config.model.mlp == "always",
        max_length=model.max_length,
        sharding=step_lib.split_over_examples(mesh),
    )
    with parallel.together():
        metrics = workdir_lib.Metrics(folder, resumed) if parallel.is_first() else None
    with closing_all([checkpoints] if metrics is None else [metrics, checkpoints]):
        recipe = make_recipe(config, corpus.input_ids.shape[1], masking)
        loop = Loop(config, settings, total_steps, encode, evaluation, checkpoints, metrics, preemption)
        state = loop.run(graph, recipe, mesh, Batches(corpus, config.train.batch_size, config.seed), state)
        best, params = checkpoints.restore_best(state.params)
        report(folder, encode, params, best, evaluation)


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


def fingerprints(corpus: Corpus, model: Pretrained, evaluation: Evaluation | None) -> dict[str, str]:
    """SHA-256 of what the config's fields lead to: a run goes on only with the same."""
    labels = () if corpus.labels is None else (corpus.labels,)
    return {
        "data.train": sha256(corpus.input_ids, *labels),
        "model.init_from": sha256(*(model.params[name] for name in sorted(model.params))),
        "eval.data": evaluation.fingerprint if evaluation else "",
    }


def choose_devices(config: config_dict.ConfigDict) -> list[jax.Device]:
    """The first `parallel.devices` of each process, or all; the batch must divide by their number."""
    wanted, there = config.parallel.devices, jax.local_device_count()
    if wanted > there:
        raise UserError(f"config.parallel.devices={wanted}: there are {there} (0: all of them)")
    devices = [d for process in range(jax.process_count()) for d in jax.local_devices(process)[: wanted or None]]
    check_divides(config, len(devices))
    return devices


def check_divides(config: config_dict.ConfigDict, devices: int) -> None:
    """Refuses a batch that does not divide by the number of devices, naming the nearest that do."""
    size = config.train.batch_size
    if size % devices:
        below, above = size // devices * devices, -(-size // devices) * devices
        nearest = f"{below} and {above}" if below else str(above)
        raise UserError(
            f"config.train.batch_size={size} does not divide by {devices} devices; the nearest are {nearest}"
        )


def read_evaluation(config: config_dict.ConfigDict) -> Evaluation | None:
    """Reads all STS data before the run starts; None when `eval.data` is empty."""
    if not config.eval.data:
        return None
    try:
        if Path(config.eval.data).expanduser().is_file():
            pairs, _ = sts.read(config.eval.data, ())
            return Evaluation(f"eval/{next(iter(pairs))}", pairs, {}, [])
        development, _ = sts.read(config.eval.data, [sts.DEVELOPMENT], "dev")
        test, missing = sts.read(config.eval.data, config.eval.tasks) if config.eval.tasks else ({}, [])
    except UserError as error:
        raise UserError(f"config.eval.data: {error} (set it to nothing to train without evaluation)") from None
    if missing:
        parallel.say(f"{config.eval.data}: {', '.join(missing)} not there and left out")
    return Evaluation("eval/stsb_dev", development, test, missing)


def read_corpus(config: config_dict.ConfigDict, model: Pretrained, tokenizer: Tokenizer) -> Corpus:
    """Reads, augments and tokenizes the training sentences, and says what it found.

    Raises:
      UserError: also where the objectives need what the data does not have.
    """
    data = config.data
    if data.max_length > model.config.max_length:
        raise UserError(
            f"config.data.max_length={data.max_length}: {model.name} takes at most {model.config.max_length} tokens"
        )
    with_labels = config.objective.softmax_nli.weight > 0
    examples = read_examples(
        data.train,
        data.columns,
        positives=data.positives,
        labels=with_labels,
        subsample=data.subsample,
        seed=config.seed,
    )
    if data.augment.name:
        examples = augmented(config, examples)
    num_columns = len(examples.columns)
    kinds = ("sentences", "pairs", "triplets", "triplets with a neutral sentence")
    notes = [f"{examples.blank} blank rows skipped"] if examples.blank else []
    notes += [f"{examples.unlabelled} without a label skipped"] if examples.unlabelled else []
    parallel.say(", ".join([f"{data.train}: {len(examples)} {kinds[num_columns - 1]}", *notes]))
    if len(examples) < config.train.batch_size:
        raise UserError(
            f"{data.train}: {len(examples)} examples are fewer than one batch; "
            f"set train.batch_size to {len(examples)} or less"
        )
    hard_negative_weight = config.objective.info_nce.hard_negative_weight
    if num_columns < 3 and hard_negative_weight != 1.0:
        raise UserError(
            f"config.objective.info_nce.hard_negative_weight={hard_negative_weight}: "
            f"{data.train} has no column of hard negatives"
        )
    if with_labels and num_columns != 2:
        raise UserError(f"config.objective.softmax_nli.weight: needs labelled pairs, but {data.train} has none")
    return tokenize(examples, tokenizer, data.max_length)


def read_masking(config: config_dict.ConfigDict, model: Pretrained) -> step_lib.LanguageModel | None:
    """What `objective.mlm` needs to know of the tokenizer; None where it is off."""
    if not config.objective.mlm.weight:
        return None
    return step_lib.LanguageModel(*special_tokens(model.folder))


def augmented(config: config_dict.ConfigDict, examples: Examples) -> Examples:
    """Sentences with a changed copy of each as its positive."""
    options = config.data.augment
    if len(examples.columns) > 1:
        raise UserError(
            f"config.data.augment.name={options.name!r}: {config.data.train} has positives of its own; "
            "choose its sentences alone with data.columns.anchor"
        )

    def change(column: int) -> list[str]:
        names = ("name", "percent", "lexicon", "mlm_model")
        chosen = {name: options[name] for name in names}
        return augment(examples.columns[0], seed=config.seed, column=column, **chosen)

    return dataclasses.replace(examples, columns=(change(0) if options.both else examples.columns[0], change(1)))


def make_settings(config: config_dict.ConfigDict, total_steps: int) -> step_lib.Settings:
    """The scalars that a compiled step takes: runs that differ only here share one compilation."""
    terms = {name: term for name, term in config.objective.items() if term.weight > 0}
    settings = {
        "learning_rate": config.train.learning_rate,
        "weight_decay": config.train.weight_decay,
        "max_grad_norm": config.train.max_grad_norm,
        "total_steps": float(total_steps),
        "dropout": config.model.dropout,
        "noise": config.views.noise,
        "objective": {
            name: {field: term[field] for field in term if is_number(name, field)} for name, term in terms.items()
        },
    }
    settings = jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), settings)
    return settings | {"seed": jnp.asarray(config.seed, jnp.uint32)}


@functools.cache
def is_number(objective: str, field: str) -> bool:
    """Whether a field of an objective is one of the numbers that a compiled step takes."""
    return isinstance(default_config().objective[objective][field], float)


def make_recipe(
    config: config_dict.ConfigDict, num_columns: int, language_model: step_lib.LanguageModel | None = None
) -> step_lib.Recipe:
    """What the step is compiled for. One column of data is encoded twice, several once each."""
    terms = {name: term for name, term in config.objective.items() if term.weight > 0}
    views, positive, negative = plan(
        num_columns,
        config.views.positive,
        config.views.negative if "off_dropout" in terms else None,
        samples=config.views.samples,
        two_towers=config.model.dual_encoder,
    )
    return step_lib.Recipe(
        pooler=config.model.pooler,
        use_head=config.model.mlp != "none",
        views=views,
        positive=positive,
        negative=negative,
        objectives=tuple(
            Objective(name, tuple((field, term[field]) for field in term if not is_number(name, field)))
            for name, term in terms.items()
        ),
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        language_model=language_model if "mlm" in terms else None,
    )


def initial_params(config: config_dict.ConfigDict, model: Pretrained) -> Params:
    """The loaded weights, and all else that is trained: fresh where the model has none of its own.

    A second encoder starts from the same weights, with a fresh head of its own.
    """
    params = {name: jnp.asarray(value) for name, value in model.params.items() if not name.startswith("head.")}
    size = model.config.hidden_size

    def fresh(stream: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(config.seed, impl="threefry2x32"), stream)

    def head(stream: int) -> Params:
        if config.model.mlp == "none":
            return {}
        if "head.kernel" in model.params and choose_pooler(model, config.model.pooler)[1]:
            return {name: jnp.asarray(model.params[name]) for name in ("head.kernel", "head.bias")}
        kernel = 0.02 * jax.random.normal(fresh(stream), (size, size), jnp.float32)
        return {"head.kernel": kernel, "head.bias": jnp.zeros(size, jnp.float32)}

    if config.model.mlp != "none" and "head.kernel" in model.params and choose_pooler(model, config.model.pooler)[1]:
        parallel.say(f"{model.name}: its own head is trained further")
    first = params | head(HEAD_STREAM)
    everything = dict(first)
    if config.model.dual_encoder:
        second = params | head(SECOND_HEAD_STREAM)
        everything |= {parameters.SECOND + name: jnp.array(value) for name, value in second.items()}
    if config.objective.mlm.weight:
        if model.language_model is None:
            parallel.say(f"{model.name}: has no language-model head; objective.mlm starts with a fresh one")
        found = model.language_model or fresh_head(model.config, fresh(LANGUAGE_MODEL_STREAM))
        everything |= {parameters.LANGUAGE_MODEL + name: jnp.asarray(value) for name, value in found.items()}
    if config.objective.softmax_nli.weight:
        everything[parameters.CLASSIFIER] = 0.02 * jax.random.normal(fresh(CLASSIFIER_STREAM), (3 * size, 3))
    return everything


@dataclasses.dataclass
class Loop:
    """The training loop, and its book-keeping: what was measured since the last log line, when to evaluate and save."""

    config: config_dict.ConfigDict
    settings: step_lib.Settings
    total_steps: int
    encode: Encode
    evaluation: Evaluation | None
    checkpoints: Checkpoints
    metrics: workdir_lib.Metrics | None  # the first process's alone
    preemption: Preemption
    pending: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)  # still on the device

    def run(
        self, graph: Any, recipe: step_lib.Recipe, mesh: Mesh, batches: Batches, state: step_lib.TrainState
    ) -> step_lib.TrainState:
        """All updates that are left."""
        first = int(state.step)
        if first >= self.total_steps:
            return state
        sharding = step_lib.split_over_examples(mesh)

        def read(number: int) -> step_lib.Batch:
            return parallel.place(functools.partial(batches.rows, number), batches.batch_size, sharding)

        batch = read(first)
        num_columns = batch["input_ids"].shape[1]
        started = time.perf_counter()
        update = step_lib.make_step(graph, recipe, mesh)
        update = update.lower(state, batch, self.settings).compile()
        parallel.say(f"compiled the step in {time.perf_counter() - started:.1f} s")
        if first == 0:
            self.evaluate(0, state.params)

        sentences = self.config.train.batch_size * num_columns
        bar = tqdm(
            total=self.total_steps, initial=first, unit="step", dynamic_ncols=True, disable=not parallel.is_first()
        )
        with bar:
            clock, counted = time.perf_counter(), 0
            for number in range(first + 1, self.total_steps + 1):
                state, values = update(state, batch, self.settings)
                if number < self.total_steps:
                    batch = read(number)
                self.pending.append((number, values))
                counted += sentences
                last = number == self.total_steps
                if number == 1 or last or number % self.config.train.log_every == 0:
                    line = self.fetch()
                    line["seconds"] = time.perf_counter() - clock
                    line["sentences_per_second"] = counted / line["seconds"]
                    self.write(number, line)
                    bar.set_postfix(loss=f"{line['loss']:.4f}", sentences_per_s=f"{line['sentences_per_second']:.0f}")
                    clock, counted = time.perf_counter(), 0
                keep_every = self.config.checkpoint.keep_every
                due = last or number % self.config.eval.every == 0
                preempted = self.preemption.reached(number) and not last
                if due or preempted or (keep_every and number % keep_every == 0):
                    self.fetch()
                    paused = time.perf_counter()
                    score = self.evaluate(number, state.params) if due else None
                    if score is None and not preempted:  # there is no time to compile then
                        self.checked_encode(number, state.params)(["Are these parameters fit to be saved?"])
                    self.save(state, score)
                    if preempted:
                        self.checkpoints.close()
                        raise Preempted(f"SIGTERM: saved at step {number}; the same command goes on from there")
                    clock += time.perf_counter() - paused
                bar.update()
        return state

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

    def write(self, number: int, values: dict[str, float]) -> None:
        """Adds a line to the metrics."""
        if self.metrics is not None:
            self.metrics.write(number, values)

    def save(self, state: step_lib.TrainState, score: float | None) -> None:
        """Saves a checkpoint, behind the metrics that belong to it."""
        with parallel.together():
            if self.metrics is not None:
                self.metrics.flush()
        self.checkpoints.save(state, score)


def report(folder: Folder, encode: Encode, params: Params, best: int, evaluation: Evaluation | None) -> None:
    """Scores the best checkpoint on the test sets, prints the paper's table and writes `result.json`."""
    if evaluation is None:
        parallel.say(f"done; the last checkpoint (step {best}) is in {folder}")
        return
    tasks = evaluation.test or evaluation.development
    results = sts.evaluate(lambda sentences: encode(params, sentences), tasks)
    missing = evaluation.missing if evaluation.test else []
    result = {**results, **sts.average(results, missing)}
    if parallel.is_first():
        write_atomically(folder / "result.json", json.dumps(result, indent=2) + "\n")
    kind = "test" if evaluation.test else "development"
    parallel.say(f"best checkpoint: step {best}; {kind} scores (Spearman × 100, all):")
    parallel.say(sts.table(results, missing))
