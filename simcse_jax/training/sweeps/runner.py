"""The runs of a sweep: which are finished, which remain, and what they have in common."""

import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from simcse_jax.choices import EXTRA, RETRIEVAL
from simcse_jax.config.evaluation_fields import has_scores
from simcse_jax.config.fields import flatten, trains
from simcse_jax.config.recorded import to_record
from simcse_jax.config.sections import Section
from simcse_jax.data.examples import prefix_of
from simcse_jax.data.files import files_of
from simcse_jax.data.sts import PREFIX, of_task
from simcse_jax.errors import Preempted, UserError, option
from simcse_jax.evaluation.postprocess import TARGET, TARGET_ALL
from simcse_jax.host.names import by_field
from simcse_jax.host.storage import is_remote, local_path
from simcse_jax.objectives.registry import needing
from simcse_jax.runs.reporters.opening import check_installed
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.sweeps.metrics import (
    AFTER,
    AGAINST,
    ANALYZED,
    HELD_OUT_DEV,
    METRICS,
    RETRIEVAL_DEV,
    choosing_metric,
)
from simcse_jax.training.sweeps.variants import Variant, read_seeds


class SweepRun(NamedTuple):
    """A variant with a seed."""

    variant: str
    seed: int
    config: Section
    workdir: Path

    @property
    def name(self) -> str:
        """The name of the run in messages."""
        return f"{self.variant} (seed {self.seed})"

    def is_done(self) -> bool:
        """Whether it has its scores, with those of `eval.extra`. If only these are missing, only they are computed."""
        folder = Workdir(self.workdir)
        if not (folder.exists and folder.has_result):
            return False
        folder.check_same_run(to_record(self.config), {})
        result = folder.read_result() or {}
        return all(name in result for extra in self.config.eval.extra for name in EXTRA[extra])


def all_runs(variants: Sequence[tuple[Variant, Section]], sweep: Section, folder: Path) -> list[SweepRun]:
    """Every variant with every seed, seed by seed, so that the table fills evenly."""
    runs_of = [(variant, config) for variant, config in variants if not variant.quoted]
    for variant, config in runs_of:
        where = f"variant {variant.name!r}:"
        check_installed(config.train.report_to)
        if config.parallel.processes != 1:
            raise UserError(f"{where} config.parallel.processes: a sweep runs in one process; set it to 1")
        if not (has_scores(config) or config.data.folds):
            name = option("eval", "FILE")
            raise UserError(
                f"{where} config.eval.data is empty, and a sweep is a table of scores; give {name}: pairs with scores"
            )
        for field, name in sources(config).items():
            if not _exists(name):
                raise UserError(f"{where} config.{field}={name}: no such file (config.sweep.only chooses other rows)")
        for metric in sweep.metrics:
            check_measured(config, metric, where)
        if config.data.held_out and HELD_OUT_DEV in variant.chosen_on:  # not on what is the test set here
            check_measured(config, HELD_OUT_DEV, where)
    _check_same_tests(runs_of)
    runs = []
    for seed in read_seeds(sweep):
        for variant, base in runs_of:
            extra = tuple(dict.fromkeys([*base.eval.extra, *choose_extra(base, sweep.metrics)]))
            config = base.replaced("seed", seed).replaced("eval.extra", extra)
            runs.append(SweepRun(variant.name, seed, config, folder / variant.name / f"seed{seed}"))
    return runs


def check_measured(config: Section, metric: str, where: str) -> None:
    """Refuses a column that a run would leave empty."""
    column, every, held_out = METRICS[metric], config.eval.every, config.data.held_out
    retrieval, graded = config.eval.retrieval, held_out and needing(config.objective, "scores")
    its_tests = scores_tests(config) and set(column.tasks) & set(config.eval.tasks)
    needs = (
        (metric in ANALYZED, config.analysis.every, "analysis.every"),
        (metric in ANALYZED, not every % (config.analysis.every or 1), "analysis.every: a divisor of eval.every"),
        (choose_extra(config, [metric]), config.eval.data, "eval.data"),
        (metric in AGAINST, config.eval.against_start, "eval.against_start"),
        (metric == HELD_OUT_DEV, held_out, "data.held_out"),
        (metric == HELD_OUT_DEV, every, "eval.every"),  # otherwise all rows held out are the test set
        (column.measure, (retrieval.data or held_out) and not graded, "eval.retrieval.data"),
        (column.measure, column.measure in retrieval.measures, f"eval.retrieval.measures: {column.measure}"),
        (metric == RETRIEVAL_DEV, config.eval.development == RETRIEVAL, "eval.development=retrieval"),
        (column.is_transfer, config.eval.transfer, "eval.transfer"),
        (column.tasks and not column.is_transfer, its_tests, "eval.data: SentEval's folder, and its eval.tasks"),
    )
    for is_needed, is_there, field in needs:
        if is_needed and not is_there:
            measured = AFTER if config.eval.against_start else choosing_metric(config)
            raise UserError(
                f"{where} the metric {metric} needs config.{field}; set it, or config.sweep.metrics={measured}"
            )


def _check_same_tests(rows: Sequence[tuple[Variant, Section]]) -> None:
    """Refuses rows of which some choose a checkpoint on half of the pairs and others are scored on all of them."""
    seen: dict[tuple[str, int], tuple[bool, str]] = {}
    for variant, config in rows:
        evaluation, held_out = config.eval, config.data.held_out
        if held_out or (evaluation.data and local_path(evaluation.data).is_file()):
            halved = bool(evaluation.every and (held_out or evaluation.against_start))
            other, name = seen.setdefault((evaluation.data, held_out), (halved, variant.name))
            if other != halved:
                raise UserError(
                    f"one of the variants {name!r} and {variant.name!r} would be scored on half of the pairs, as the "
                    "other half chooses its checkpoint, so a table cannot compare them; set config.eval.every and "
                    "config.eval.against_start alike in all rows"
                )


def sources(config: Section) -> dict[str, str]:
    """The sources that a run reads, by field."""
    names = by_field("data.train", config.data.train) if trains(config) else {}
    if config.eval.postprocess and config.eval.postprocess_data not in (TARGET, TARGET_ALL):
        names |= by_field("eval.postprocess_data", config.eval.postprocess_data)
    if config.analysis.every and config.analysis.data:
        names["analysis.data"] = config.analysis.data
    if config.eval.retrieval.data:
        names |= by_field("eval.retrieval.data", config.eval.retrieval.data)
    return names | ({"eval.data": config.eval.data} if config.eval.data else {})


def _exists(name: str) -> bool:
    """Whether a source can be read, as far as the names of files say that."""
    kind = prefix_of(name)
    if kind == PREFIX:
        rest = name.removeprefix(PREFIX)
        return local_path((of_task(rest) or (rest,))[0]).exists()
    if kind or is_remote(name) or local_path(name).exists():
        return True
    try:
        return all(local_path(file).exists() for file in files_of(name))
    except UserError:  # of a pattern that nothing matches
        return False


def choose_extra(config: Section, wanted: Sequence[str]) -> list[str]:
    """What `eval.extra` needs for the columns that are wanted; the scores that chose the checkpoint are there."""
    return [extra for metric in wanted if (extra := METRICS[metric].extra) and extra != choosing_metric(config)]


def scores_tests(config: Section) -> bool:
    """Whether the best checkpoint is scored on test tasks, not on the development pairs once more."""
    return bool(config.eval.data and config.eval.tasks) and not local_path(config.eval.data).is_file()


def run_all(runs: Sequence[SweepRun]) -> list[str]:
    """Runs all that are not finished; a run that was stopped resumes, and one that fails is reported and skipped.

    Returns:
      A line for each failed run.

    Raises:
      Preempted: at a SIGTERM; the run under way has saved itself.
    """
    pending = [run for run in runs if not run.is_done()]
    print(f"{len(runs)} runs, {len(runs) - len(pending)} of them done", flush=True)
    problems: list[str] = []
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    try:
        started = time.monotonic()
        for number, run in enumerate(pending):
            if signals:  # one that arrived after the last step of a run, which ignores it
                raise Preempted("SIGTERM: all runs so far are saved; the same command resumes there")
            wait = (time.monotonic() - started) / number * (len(pending) - number) if number else 0
            place = f"run {number + 1} of {len(pending)}{f', {tqdm.format_interval(wait)} left' if wait else ''}"
            print(f"=== {place}: {run.name}", flush=True)
            try:
                train_and_evaluate(run.config, str(run.workdir))
            except UserError as error:
                print(f"error: {error}", flush=True)
                problems.append(f"{run.name}: {error}")
    finally:
        signal.signal(signal.SIGTERM, before)
    return problems


def report_finished(runs: Sequence[SweepRun], folder: Path) -> list[str]:
    """Takes the place of `run_all` where nothing is to be run; refuses a table without a finished run."""
    done = sum(run.is_done() for run in runs)
    if not done:
        raise UserError(f"config.sweep.run=False: none of the {len(runs)} runs in {folder} is finished; run some first")
    print(f"{len(runs)} runs, {done} of them done", flush=True)
    return []


def describe_runs(runs: Sequence[SweepRun]) -> str:
    """One line for below the table: the model, the data and the size that all runs have in common."""
    fields = [flatten(run.config) for run in runs]
    if not fields:
        return ""
    names = ["model.init_from", "model.num_layers", "data.train", "train.batch_size", "train.max_steps", "train.epochs"]
    names += ["train.learning_rate", "eval.tasks"]
    if not any(trains(run.config) for run in runs):
        names = [name for name in names if not name.startswith(("data.train", "train."))]
    if not any(run.config.eval.data for run in runs):
        names.remove("eval.tasks")
    if any(run.config.eval.retrieval.data for run in runs):
        names += [f"eval.retrieval.{name}" for name in ("data", "split", "documents", "storage")]
    names += [name for name in ("data.held_out", "data.folds") if any(fields_of[name] for fields_of in fields)]
    if any(run.config.eval.transfer for run in runs):
        names.append("eval.transfer_protocol")
    common = [f"{name}={_text(fields[0][name])}" for name in names if all(f[name] == fields[0][name] for f in fields)]
    return ", ".join(common)


def describe_machines(runs: Sequence[SweepRun]) -> str:
    """A line for below the table: versions and device of the runs that exist; several lines where these differ."""
    names = ("simcse_jax", "jax", "flax", "optax", "numpy", "transformers", "tokenizers")

    def machine(versions: Mapping[str, Any], device: Mapping[str, Any]) -> str:
        listed = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
        return f"{listed}; Python {versions['python']}; {device['count']} × {device['kind']}"

    records = [folder.read_run() for folder in (Workdir(run.workdir) for run in runs) if folder.exists]
    lines = Counter(machine(record["versions"], record["device"]) for record in records)
    if len(lines) == 1:
        return next(iter(lines))
    return "\n".join(f"- {count} run{'s' * (count > 1)}: {line}" for line, count in lines.items())


def check_same_data(runs: Sequence[SweepRun]) -> None:
    """Refuses to compare runs that, by their own records, read different contents under the same name.

    These are training data, the pairs that chose checkpoints and the model where the fields that name them are the
    same, and all else between the seeds of a row.
    """
    seen: dict[tuple[Any, ...], tuple[SweepRun, str]] = {}
    for run in runs:
        folder = Workdir(run.workdir)
        for field, contents in folder.read_run()["sha256"].items() if folder.exists else ():
            other, first = seen.setdefault((field, *_source_values(run, field)), (run, contents))
            if first != contents:
                named = "data.held_out" if _is_held_out(run, field) else field
                raise UserError(
                    f"{run.name} and {other.name} read different contents of config.{named}="
                    f"{flatten(run.config)[named]}, so a table cannot compare them; keep the runs of other data in "
                    f"another workdir, or remove {run.workdir} to run it again"
                )


def _is_held_out(run: SweepRun, field: str) -> bool:
    return bool(run.config.data.held_out) and field in ("eval.data", "eval.retrieval.data")


def _source_values(run: SweepRun, field: str) -> tuple[Any, ...]:
    """The values of a config that decide which contents a field has."""
    config = run.config
    if _is_held_out(run, field):
        field = "data.train"  # of which it is a part
    if field == "eval.data":
        return config.eval.data, config.eval.development
    if field == "model.init_from":
        return config.model.init_from, config.model.num_layers
    if field == "data.train":
        data = config.data
        drawn = data.augment.name or data.subsample or data.held_out or data.positives in ("next_3_sentences", "spans")
        objectives = tuple(name for name, term in config.objective.items() if term.weight)
        read = tuple(item for item in flatten(config).items() if item[0].startswith(("data.", "teacher.")))
        return config.model.init_from, trains(config), objectives, read, run.seed if drawn else None
    return run.variant, None


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
