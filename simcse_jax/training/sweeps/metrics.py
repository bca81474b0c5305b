"""What the runs of a sweep can be measured by: the names that `sweep.metrics` takes.

    TASK[_mean|_wmean][_pearson]        a similarity task: STS12 … STS16, STSBenchmark, SICKRelatedness
    sts_avg|sts_mean|sts_wmean[_pearson]  the average over the similarity tasks
    stsb_dev, sickr_dev                 the best checkpoint's Spearman correlation on a development set
    retrieval_MEASURE                   the average over the retrieval tasks: retrieval_ndcg@10, and so on
    retrieval_dev                       the first of eval.retrieval.measures where it chose the checkpoint
    held_out_dev                        the best checkpoint's score on rows of data.held_out that choose it
    before, after                       of the start and of the best checkpoint, as eval.against_start compares them
    TASK[_dev]                          a transfer task: MR, CR, SUBJ, MPQA, SST2, TREC, MRPC
    transfer_avg, transfer_dev_avg      the average over the transfer tasks
    alignment, uniformity               on STS-B's pairs
    anisotropy, effective_rank          of the best checkpoint: of its last layer, and of its sentence embeddings, as
                                        `analysis.every` measured them
    training_minutes, best_step         without evaluations and compilation; of the best development score
    steps                               all of the run

The aggregation of a task's subsets is `all` where none is named, the correlation Spearman's (SimCSE, Appendix B). With
`_dev`, a transfer task's figure is the accuracy by which its regularization was chosen.
"""

from typing import NamedTuple

from simcse_jax import choices
from simcse_jax.config.sections import Config
from simcse_jax.evaluation import sts
from simcse_jax.host.storage import local_path

MINUTES, BEST_STEP, STEPS = "training_minutes", "best_step", "steps"
ANALYZED = ("anisotropy", "effective_rank")  # by `analysis.every`
BEFORE, AFTER = AGAINST = ("before", "after")
HELD_OUT_DEV = "held_out_dev"
RETRIEVAL_DEV = f"{choices.RETRIEVAL}_dev"
TITLES = sts.TITLES | {"SST2": "SST"}  # of tasks, where the papers' tables have another name


class Metric(NamedTuple):
    """A column."""

    heading: str
    tasks: tuple[str, ...] = ()  # one, or all that an average can have
    parts: tuple[str, ...] = ()  # of an average: the metrics of its tasks
    extra: str = ""  # the value of `eval.extra` that measures it
    measure: str = ""  # of retrieval
    lower: bool = False  # whether lower is better
    decimals: int = 2

    @property
    def is_transfer(self) -> bool:
        """Whether it scores transfer tasks."""
        return bool(self.tasks) and self.tasks[0] in choices.TRANSFER


def similarity(task: str, aggregation: str = "all", metric: str = "spearman") -> str:
    """The name of a similarity task's figure; of the average for the task `sts`."""
    kind = "" if aggregation == "all" else f"_{aggregation}"
    name = "sts_avg" if (task, kind) == ("sts", "") else f"{task}{kind}"
    return name if metric == "spearman" else f"{name}_{metric}"


def transfer(task: str, development: bool = False) -> str:
    """The name of a transfer task's accuracy; of the average for the task `transfer`."""
    return f"{task}{'_dev' if development else ''}{'_avg' if task == 'transfer' else ''}"


def _similarities() -> dict[str, Metric]:
    metrics = {}
    for task in ("sts", *choices.TASKS):
        for aggregation in choices.AGGREGATIONS:
            for metric, title in choices.METRICS.items():
                how = [aggregation] * (aggregation != "all") + [title] * (metric != "spearman")
                heading = "STS avg." if task == "sts" else TITLES.get(task, task)
                heading += f" ({', '.join(how)})" if how else ""
                tasks = choices.TASKS if task == "sts" else (task,)
                parts = tuple(similarity(name, aggregation, metric) for name in tasks) if task == "sts" else ()
                metrics[similarity(task, aggregation, metric)] = Metric(heading, tasks, parts)
    return metrics


def _transfers() -> dict[str, Metric]:
    metrics = {}
    for task in ("transfer", *choices.TRANSFER):
        for development in (False, True):
            heading = f"{TITLES.get(task, task)}{' dev' if development else ''}{' avg.' if task == 'transfer' else ''}"
            tasks = choices.TRANSFER if task == "transfer" else (task,)
            parts = tuple(transfer(name, development) for name in tasks) if task == "transfer" else ()
            metrics[transfer(task, development)] = Metric(heading, tasks, parts)
    return metrics


def retrieval(measure: str) -> str:
    """The name of the average of a measure over the retrieval tasks."""
    return f"{choices.RETRIEVAL}_{measure}"


def is_development(metric: str) -> bool:
    """Whether it scores a development set."""
    return "_dev" in metric


def choosing_metric(config: Config) -> str:
    """The column of the development scores that chose the checkpoint; the pairs of a file are in STS-B's."""
    if config.data.held_out:
        return HELD_OUT_DEV
    if config.eval.development == choices.RETRIEVAL:
        return RETRIEVAL_DEV
    return "stsb_dev" if local_path(config.eval.data).is_file() else f"{config.eval.development}_dev"


def share_data(first: str, second: str) -> bool:
    """Whether two metrics score a task in common, on the same of its sets.

    `before` and `after` may be of any test task of similarity or retrieval, held-out rows among them.
    """
    same_sets = is_development(first) == is_development(second)
    return first == second or (same_sets and bool(_tasks(first) & _tasks(second)))


def _tasks(name: str) -> set[str]:
    if name in AGAINST:
        return {*choices.TASKS, choices.RETRIEVAL}
    return {*METRICS[name].tasks, *[choices.RETRIEVAL] * bool(METRICS[name].measure)}


METRICS = {
    "stsb_dev": Metric("STS-B dev", extra="stsb_dev"),
    "sickr_dev": Metric("SICK-R dev", extra="sickr_dev"),
    **_similarities(),
    **_transfers(),
    RETRIEVAL_DEV: Metric("retrieval dev"),
    HELD_OUT_DEV: Metric("held out, dev"),
    **{name: Metric(name) for name in AGAINST},
    **{retrieval(name): Metric(title, measure=name) for name, title in choices.MEASURES.items()},
    **{name: Metric(name, extra="geometry", lower=True, decimals=3) for name in choices.GEOMETRY},
    "anisotropy": Metric("anisotropy", lower=True, decimals=3),
    "effective_rank": Metric("effective rank", decimals=1),
    MINUTES: Metric("training, min", lower=True),
    BEST_STEP: Metric("best step", lower=True, decimals=0),
    STEPS: Metric("steps", lower=True, decimals=0),
}
HEADINGS = {name: metric.heading for name, metric in METRICS.items()}
WORDS = (
    f"any of {', '.join(name for name, metric in METRICS.items() if not metric.tasks and not metric.measure)}; "
    f"sts_avg, sts_mean, sts_wmean, or {', '.join(choices.TASKS)}, those with _mean or _wmean, all with _pearson; "
    f"transfer_avg, transfer_dev_avg, or {', '.join(choices.TRANSFER)}, these with _dev; "
    f"{', '.join(retrieval(f'{name}@K') for name in choices.RANKINGS)} with K of {', '.join(map(str, choices.CUTOFFS))}"
)
