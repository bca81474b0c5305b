"""The runs of a sweep: which are finished, which remain, and what they have in common."""

import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from simcse_jax.choices import EXTRA, RETRIEVAL, TRANSFER
from simcse_jax.config.evaluation_fields import has_scores
from simcse_jax.config.fields import flatten, trains
from simcse_jax.config.recorded import to_record
from simcse_jax.config.sections import Section
from simcse_jax.data.examples import prefix_of
from simcse_jax.data.files import files_of
from simcse_jax.data.sts import PREFIX, of_task
from simcse_jax.errors import Preempted, UserError, option
from simcse_jax.evaluation import transfer_files
from simcse_jax.evaluation.postprocess import TARGET, TARGET_ALL
from simcse_jax.host.names import by_field
from simcse_jax.host.storage import is_remote, local_path
from simcse_jax.objectives.registry import needing
from simcse_jax.runs.reporters.opening import check_installed
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.evaluation import read_extra
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
        """Whether it has its scores, with those of `eval.extra`. If only these are missing, only they are computed.

        Raises:
          UserError: when its folder holds a run of another config.
        """
        folder = Workdir(self.workdir)
        if not (folder.exists and folder.has_result):
            return False
        folder.check_same_run(to_record(self.config), {})
        result = folder.read_result() or {}
        return all(name in result for extra in self.config.eval.extra for name in EXTRA[extra])


def all_runs(variants: Sequence[tuple[Variant, Section]], sweep: Section, folder: Path) -> list[SweepRun]:
    """Every variant with every seed, seed by seed, so that the table fills evenly.

    Raises:
      UserError: for a mistake that would stop every run, before the first starts.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{option('workdir', folder)}: is a file")
    runs_of = [(variant, config) for variant, config in variants if not variant.quoted]
    for variant, config in runs_of:
        where = f"variant {variant.name!r}: config"
        check_installed(config.train.report_to)
        if config.parallel.processes != 1:
            raise UserError(f"{where}.parallel.processes: a sweep runs in one process; set it to 1")
        if not has_scores(config):
            name = option("eval", "FILE")
            raise UserError(
                f"{where}.eval.data is empty, and a sweep is a table of scores; give {name}: pairs with scores"
            )
        for field, name in sources(config).items():
            if not _exists(name):
                raise UserError(f"{where}.{field}={name}: no such file (config.sweep.only chooses other rows)")
        for metric in sweep.metrics:
            check_measured(config, metric, where)
        if config.data.held_out and HELD_OUT_DEV in variant.chosen_on:  # not on what is the test set here
            check_measured(config, HELD_OUT_DEV, where)
    _check_same_tests(runs_of)
    measured = [(config.eval.data, tuple(choose_extra(config, sweep.metrics))) for _, config in runs_of]
    for data, extra in dict.fromkeys(measured):
        try:
            read_extra(data, extra)
        except UserError as error:
            raise UserError(f"config.sweep.metrics: {error}") from None
    for data in dict.fromkeys(config.eval.data for _, config in runs_of if config.eval.transfer):
        try:
            transfer_files.read(data, TRANSFER)
        except UserError as error:
            raise UserError(f"config.eval.transfer: {error}") from None
    runs = []
    for seed in read_seeds(sweep):
        for variant, base in runs_of:
            extra = tuple(dict.fromkeys([*base.eval.extra, *choose_extra(base, sweep.metrics)]))
            config = base.replaced("seed", seed).replaced("eval.extra", extra)
            runs.append(SweepRun(variant.name, seed, config, folder / variant.name / f"seed{seed}"))
    return runs


def check_measured(config: Section, metric: str, where: str) -> None:
    """Refuses a column that a run would leave empty.

    Raises:
      UserError: naming the field that must be set.
    """
    needed, of_retrieval = METRICS[metric], config.eval.retrieval
    measured, scored = config.analysis.every, config.eval.every
    if metric in ANALYZED and (not measured or scored % measured):
        raise UserError(
            f"{where}.analysis.every={measured}: must divide eval.every={scored} for the metric {metric}, so that "
            "every checkpoint that can be the best one is measured"
        )
    if choose_extra(config, [metric]) and not config.eval.data:
        raise UserError(f"{where}.eval.data: must be set for the metric {metric}")
    if metric in AGAINST and not config.eval.against_start:
        raise UserError(f"{where}.eval.against_start: must be set for the metric {metric}")
    if metric == HELD_OUT_DEV and not config.data.held_out:
        raise UserError(f"{where}.data.held_out: must be set for the metric {metric}")
    if metric == HELD_OUT_DEV and not scored:
        raise UserError(
            f"{where}.eval.every=0: must be above 0 for the metric {metric}: where nothing is chosen, all rows held "
            "out are the test set. Set it, or eval.against_start and the metric after"
        )
    if needed.measure and not (of_retrieval.data or config.data.held_out):
        raise UserError(f"{where}.eval.retrieval.data: must be set for the metric {metric}")
    if needed.measure and config.data.held_out and (graded := needing(config.objective, "scores")):
        raise UserError(
            f"{where}.data.held_out={config.data.held_out}: pairs with scores, which objective.{graded[0].name} needs, "
            f"are judged by Spearman's correlation, not by {metric}; "
            f"set config.sweep.metrics={_suggest_metrics(config)}"
        )
    if needed.measure and needed.measure not in of_retrieval.measures:
        measures = ",".join(of_retrieval.measures)
        raise UserError(f"{where}.eval.retrieval.measures={measures}: has no {needed.measure}, for {metric}")
    if metric == RETRIEVAL_DEV and config.eval.development != RETRIEVAL:
        raise UserError(f"{where}.eval.development={config.eval.development!r}: must be retrieval, for {metric}")
    if not needed.tasks:
        return
    if needed.is_transfer:
        if not config.eval.transfer:
            raise UserError(f"{where}.eval.transfer: must be set for the metric {metric}")
    elif not scores_tests(config):
        problem = (
            f"eval.data={config.eval.data} has no test tasks for {metric}; give SentEval's folder and eval.tasks, or"
        )
        if config.data.held_out:
            problem = f"data.held_out={config.data.held_out}: {metric} is not measured on rows held out;"
        raise UserError(f"{where}.{problem} set config.sweep.metrics={_suggest_metrics(config)}")
    elif not set(needed.tasks) & set(config.eval.tasks):
        raise UserError(f"{where}.eval.tasks={','.join(config.eval.tasks)}: has no {needed.tasks[0]}, for {metric}")


def _suggest_metrics(config: Section) -> str:
    """A metric that the run has."""
    return AFTER if config.eval.against_start else choosing_metric(config)


def _check_same_tests(rows: Sequence[tuple[Variant, Section]]) -> None:
    """Refuses rows of which some choose a checkpoint on half of the pairs and others are scored on all of them."""
    seen: dict[tuple[str, int], tuple[bool, str]] = {}
    for variant, config in rows:
        evaluation, held_out = config.eval, config.data.held_out
        if not held_out and not (evaluation.data and local_path(evaluation.data).is_file()):
            continue
        halved = bool(evaluation.every and (held_out or evaluation.against_start))
        other, name = seen.setdefault((evaluation.data, held_out), (halved, variant.name))
        if other != halved:
            pairs, cure = "the rows held out", "eval.every to 0 in all rows or in none"
            if not held_out:
                pairs, cure = evaluation.data, "eval.every and eval.against_start alike in all rows"
            half, whole = (variant.name, name) if halved else (name, variant.name)
            raise UserError(
                f"variant {half!r} would be scored on half of {pairs}, as the other half chooses its checkpoint, and "
                f"variant {whole!r} on all of them, so a table cannot compare them; set config.{cure}"
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
    """Runs all that are not finished; a run that was stopped resumes.

    A failed run (a loss that is not finite, data that cannot be read) is reported and skipped; the others continue.

    Args:
      runs: all of them.

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
    """Prints how many runs are finished; takes the place of `run_all` where nothing is to be run.

    Returns:
      No failed runs.

    Raises:
      UserError: if none is finished, so that there is no table.
    """
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
    if any(run.config.data.held_out for run in runs):
        names.append("data.held_out")
    if any(run.config.eval.transfer for run in runs):
        names.append("eval.transfer_protocol")
    common = [f"{name}={_text(fields[0][name])}" for name in names if all(f[name] == fields[0][name] for f in fields)]
    return ", ".join(common)


def describe_machines(runs: Sequence[SweepRun]) -> str:
    """A line for below the table: versions and device of the runs that exist; several lines where these differ."""
    records = [folder.read_run() for folder in (Workdir(run.workdir) for run in runs) if folder.exists]
    lines = Counter(_machine(record["versions"], record["device"]) for record in records)
    if len(lines) == 1:
        return next(iter(lines))
    return "\n".join(f"- {count} run{'s' * (count > 1)}: {line}" for line, count in lines.items())


def _machine(versions: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    names = ("simcse_jax", "jax", "flax", "optax", "numpy", "transformers", "tokenizers")
    listed = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    return f"{listed}; Python {versions['python']}; {device['count']} × {device['kind']}"


def check_same_data(runs: Sequence[SweepRun]) -> None:
    """Refuses to compare runs that read different contents under the same name.

    The runs' own records are compared, so nothing is read again: training data, the pairs that chose checkpoints and
    the model where the fields that name them are the same, and all else between the seeds of a row.

    Raises:
      UserError: naming two such runs, and the field.
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
        objectives = tuple(name for name, term in config.objective.items() if term.weight)
        read = tuple(item for item in flatten(config).items() if item[0].startswith(("data.", "teacher.")))
        return config.model.init_from, trains(config), objectives, read, run.seed if draws_data(config) else None
    return run.variant, None


def draws_data(config: Section) -> bool:
    """Whether the training data are other ones with another seed."""
    data = config.data
    drawn = data.augment.name or data.subsample or data.held_out
    return bool(drawn or data.positives in ("next_3_sentences", "spans"))


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
