"""The scores of a sweep's runs, by the names of `sweep.metrics`, and what may stand next to them."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from simcse_jax.choices import AGGREGATIONS, EXTRA, GEOMETRY, TASKS
from simcse_jax.choices import METRICS as CORRELATIONS
from simcse_jax.config.fields import trains
from simcse_jax.config.sections import Section
from simcse_jax.host.storage import local_path
from simcse_jax.runs import run_files
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.sweeps import metrics
from simcse_jax.training.sweeps.metrics import METRICS, choosing_metric, is_development
from simcse_jax.training.sweeps.runner import SweepRun, scores_tests
from simcse_jax.training.sweeps.variants import Variant

# The papers' protocols of transfer tasks; which one scored development sets (SimCSE, Table D.2) is open.
TEST_PROTOCOLS, DEVELOPMENT_PROTOCOLS = ("pytorch",), ("pytorch", "pytorch_fast")


class SweepScores(NamedTuple):
    """The scores of the finished runs."""

    by_run: dict[str, dict[int, dict[str, float]]]  # variant → seed → metric → value
    absent: dict[str, tuple[str, ...]]  # average → the tasks that it lacks; complete averages are left out
    measures: tuple[str, ...] = ()  # of `before` and `after`


def read_scores(runs: Sequence[SweepRun]) -> SweepScores:
    """The scores of the finished runs; a metric that a run does not have is left out.

    `stsb_dev`, or `sickr_dev` or `retrieval_dev` where `eval.development` says so, or `held_out_dev` with
    `data.held_out`, is the best of the development scores (of `eval.data` if that is a file), by which the checkpoint
    was chosen, or that checkpoint's score after the post-processing; `best_step` is its step. `before` and `after` are
    those of `eval.against_start`. Where that checkpoint was damaged and the next best one was scored, they
    are that one's. An average is over the tasks that all finished runs have, so that rows can be compared.
    """
    by_run: dict[str, dict[int, dict[str, float]]] = {}
    measures: dict[str, None] = {}
    for run in runs:
        seeds = by_run.setdefault(run.variant, {})
        if run.is_done():
            folder = Workdir(run.workdir)
            result = folder.read_result()
            assert result is not None  # it is done
            seeds[run.seed] = _training_scores(run.config, folder.read_metrics(), result) | _task_scores(
                run.config, result
            )
            if measure := result.get(run_files.AGAINST_START, {}).get("measure"):
                measures[measure] = None
    absent = {}
    for name, metric in METRICS.items():
        with_parts = [scores for seeds in by_run.values() for scores in seeds.values() if {*metric.parts} & {*scores}]
        measured_parts = [part for part in metric.parts if all(part in scores for scores in with_parts)]
        for scores in with_parts if measured_parts else []:
            scores[name] = fmean(scores[part] for part in measured_parts)
        if with_parts and len(measured_parts) < len(metric.parts):
            absent[name] = tuple(METRICS[part].tasks[0] for part in metric.parts if part not in measured_parts)
    return SweepScores(by_run, absent, tuple(measures))


def _training_scores(
    config: Section, lines: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> dict[str, float]:
    """The scores recorded during training, from the lines of `metrics.jsonl`."""
    scored_step = result.get(run_files.BEST_STEP)  # not the best one where that checkpoint was damaged
    # Step 0 is a candidate for the best checkpoint only where the start was kept, or there is nothing else.
    scored = [line for line in lines if line["step"] or scored_step == 0 or not trains(config)]
    developments = [(line[name], line["step"]) for line in scored for name in line if name.startswith("eval/")]
    developments = [development for development in developments if scored_step in (None, development[1])]
    best, step = max(developments, default=(None, scored_step))  # of equals the last step, as checkpoints have it
    if config.eval.postprocess:
        first = next(iter(result.values()))  # the development pairs, if they are scored at the end
        best = result["development"] if scores_tests(config) else first["spearman"]
    seconds = [line["seconds"] for line in lines if "seconds" in line]
    analyzed = {line["step"]: line["analysis"] for line in lines if "analysis" in line}
    scores = {
        choosing_metric(config): best,
        **{name: analyzed.get(step, {}).get(name) for name in metrics.ANALYZED},
        metrics.BEST_STEP: step if trains(config) else None,
        metrics.STEPS: max((line["step"] for line in lines), default=None) if trains(config) else None,
        metrics.MINUTES: sum(seconds) / 60 if seconds else None,
    }
    against = result.get(run_files.AGAINST_START, {})
    scores |= {name: against.get(name) for name in metrics.AGAINST}
    scores |= {name: result[name] for names in EXTRA.values() for name in names if name in result}
    return {name: value for name, value in scores.items() if value is not None}


def _task_scores(config: Section, result: Mapping[str, Any]) -> dict[str, float]:
    """Each test task's figures."""
    scores: dict[str, float] = {}
    for task in TASKS if scores_tests(config) else ():
        for aggregation in AGGREGATIONS:
            figures = result.get(task, {}) if aggregation == "all" else result.get(task, {}).get(aggregation, {})
            scores |= {
                metrics.similarity(task, aggregation, metric): figures[metric]
                for metric in CORRELATIONS
                if metric in figures
            }
    averages = {metrics.retrieval(name): value for name, value in result.get("retrieval_average", {}).items()}
    scores |= {name: value for name, value in averages.items() if name in METRICS}
    for task, figures in result.get("transfer", {}).items():
        for development, name in ((False, "accuracy"), (True, "dev_accuracy")):
            if name in figures:
                scores[metrics.transfer(task, development)] = figures[name]
    return scores


def comparable(variant: Variant, config: Section, absent: Mapping[str, Sequence[str]] = {}) -> Variant:
    """The variant with only those values of the paper that are measured as ours are, averaged over the same tasks.

    Left out are values of other pairs than STS-B's, averages for which the paper lacks a task that is there, and
    transfer tasks in another protocol.
    """
    paper, not_comparable = dict(variant.paper), set()
    for name, metric in METRICS.items():
        scored = metric.tasks if metric.is_transfer else config.eval.tasks
        is_measured = [
            METRICS[part].tasks[0] in scored and METRICS[part].tasks[0] not in absent.get(name, ())
            for part in metric.parts
        ]
        if not all(is_measured):
            parts = [part for part, measured in zip(metric.parts, is_measured, strict=True) if measured]
            paper.pop(name, None)
            if parts and all(part in paper for part in parts):
                paper[name] = fmean(paper[part] for part in parts)
    if local_path(config.eval.data).is_file():
        not_comparable |= {"stsb_dev", *GEOMETRY}
    for name in (name for name, metric in METRICS.items() if metric.is_transfer):
        allowed = DEVELOPMENT_PROTOCOLS if is_development(name) else TEST_PROTOCOLS
        if config.eval.transfer_protocol not in allowed:
            not_comparable.add(name)
    return variant._replace(paper={name: value for name, value in paper.items() if name not in not_comparable})


def headings(
    configs: Sequence[Section], absent: Mapping[str, Sequence[str]], measures: Sequence[str] = ()
) -> dict[str, str]:
    """The heading of each metric's column.

    Pairs in a file have the file's name, an average the number of its tasks, `before` and `after` their `measures`.
    """
    headings = {name: metric.heading for name, metric in METRICS.items()}
    files = dict.fromkeys(local_path(config.eval.data) for config in configs)
    headings["stsb_dev"] = ", ".join(dict.fromkeys(path.name if path.is_file() else "STS-B dev" for path in files))
    for name in metrics.AGAINST if measures else ():
        headings[name] = f"{' or '.join(measures)}, {name}"
    for name, tasks in absent.items():
        all_tasks = len(METRICS[name].tasks)
        headings[name] += f", {all_tasks - len(tasks)} of {all_tasks}"
    return headings


def note_missing_tasks(absent: Mapping[str, Sequence[str]]) -> str:
    """A sentence for below the table, which names the tasks that averages are without; empty if there are none."""
    tasks = dict.fromkeys(metrics.TITLES.get(task, task) for names in absent.values() for task in names)
    return f"Averages, the paper's too, are over the tasks that are there, without {', '.join(tasks)}." if tasks else ""
