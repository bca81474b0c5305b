"""The evaluators of a run: what chooses its best checkpoint, and the tasks that score it at the end."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from simcse_jax.choices import DEVELOPMENT, EXTRA, RETRIEVAL, TRANSFER
from simcse_jax.config.evaluation_fields import FEWEST_ANALYSED
from simcse_jax.devices import processes
from simcse_jax.errors import UserError, about
from simcse_jax.evaluation import geometry, postprocess, retrieval, sts, transfer, transfer_files
from simcse_jax.evaluation.analysis import last_layer
from simcse_jax.evaluation.analysis.inputs import evenly, read_data
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Encode, evaluate_all
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import local_path, sha256

DEVELOPMENT_SETS = {f"{name}_dev": task for name, task in DEVELOPMENT.items()}  # by the names of their scores
Extra = sts.Correlation | geometry.Plane
Final = sts.Similarity | transfer.Transfer | retrieval.Retrieval | Extra


@dataclasses.dataclass(frozen=True)
class EvaluationSpec:
    """How a run is scored; see the fields of `config.eval`."""

    data: str
    development: str
    tasks: tuple[str, ...]
    transfer: bool
    transfer_protocol: str
    extra: tuple[str, ...]
    postprocess: str
    postprocess_data: str
    postprocess_dimensions: int
    retrieval: retrieval.RetrievalSpec
    halved: bool  # one half of a file of pairs chooses the checkpoint, and the other scores it
    seed: int  # draws the halves


class AnalysisSpec(NamedTuple):
    """The sentences that the last layer is measured on; see the fields of `config.analysis`."""

    data: str
    split: str
    sentences: int
    repeated_sentences: str


class Evaluation(NamedTuple):
    """The evaluators of a run."""

    development: sts.Correlation | retrieval.Ranking | transfer.Accuracy  # chooses the best checkpoint
    final: list[Final]  # score it at the end, for `result.json`
    has_tests: bool  # False: the pairs that chose the checkpoint are scored at the end, too
    postprocess: postprocess.Postprocess | None  # of the embeddings that are scored at the end
    extra: Mapping[str, Extra] = {}  # score it at the end, too: those of `eval.extra`

    @property
    def tasks(self) -> list[tuple[str, Any]]:
        """All tasks, by name."""
        return [item for evaluator in (self.development, *self.at_end) for item in evaluator.tasks.items()]

    @property
    def at_end(self) -> list[Final]:
        """The evaluators that score the best checkpoint at the end."""
        return [*self.final, *self.extra.values()]

    @property
    def pairs(self) -> sts.Pairs | None:
        """The graded pairs that choose the best checkpoint; None if retrieval does."""
        return next(iter(self.development.tasks.values())) if isinstance(self.development, sts.Correlation) else None

    @property
    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of the data on which the choice of the best checkpoint depends, by the field that names them."""
        return {"eval.data" if self.pairs else "eval.retrieval.data": self.development.fingerprint}

    @property
    def final_fingerprint(self) -> str:
        """SHA-256 of all that is encoded and searched at the end; all processes must do the same."""
        sentences = []
        for _, task in self.tasks:
            sentences += [task.fingerprint] if isinstance(task, Collection) else postprocess.sentences_of(task)
        if self.postprocess:
            sentences += self.postprocess.sentences or []
            sentences += [sentence for _, task in sorted(self.postprocess.splits.items()) for sentence in task]
        return sha256(np.frombuffer("\n".join(sentences).encode(), np.uint8))

    def with_prompts(self, prompts: Mapping[str, str], usual: str = "") -> "Evaluation":
        """This evaluation with prompts; see `with_prompts`."""
        return self._replace(
            development=with_prompts(self.development, prompts, usual),
            final=[with_prompts(evaluator, prompts, usual) for evaluator in self.final],
            extra={name: with_prompts(evaluator, prompts, usual) for name, evaluator in self.extra.items()},
        )

    def restrict_to_missing(self, result: Mapping[str, Any]) -> "Evaluation":
        """The evaluators to run: only the `eval.extra` that a model's result lacks, or all if it lacks a task."""
        scored = {*result, *result.get("transfer", {}), *result.get("retrieval", {})}
        tasks = {name for evaluator in self.final for name in _names(evaluator)}
        more = {name: task_set for name, task_set in self.extra.items() if not scored >= set(EXTRA[name])}
        return self._replace(final=[], extra=more) if tasks <= scored and more else self

    def final_scores(self, embed: Encode, seed: int) -> dict[str, Any]:
        """The contents of `result.json`. `seed` is the flow's.

        They are the results of `sts.evaluate` by task, and `average`; `development`, the development pairs' score after
        the post-processing, which did not choose the checkpoint; `transfer` by task, `transfer_average`, and
        `transfer_protocol`; `retrieval` by task and `retrieval_average` by measure; the numbers of
        `eval.extra`: `stsb_dev`; `sickr_dev`; `alignment` and `uniformity`.
        """
        return evaluate_all(postprocess.transformed(embed, self.postprocess, seed), self.at_end)

    def tables(self, numbers: dict[str, Any]) -> Iterator[str]:
        """Prints `final_scores`: a heading and a table for each kind of task."""
        after = f" after {self.postprocess.method}" if self.postprocess else ""
        for evaluator in self.at_end:
            if isinstance(evaluator, sts.Similarity):
                kind = "test" if self.has_tests else "development"
                yield f"{kind} scores{after} (Spearman × 100, all):\n{evaluator.table(numbers)}"
            elif isinstance(evaluator, transfer.Transfer):
                yield f"transfer{after} (accuracy, protocol {evaluator.transfer_protocol}):\n{evaluator.table(numbers)}"
            elif isinstance(evaluator, retrieval.Retrieval):
                yield f"retrieval: {evaluator.protocol}\n{evaluator.table(numbers)}"
        extra = [name for kind_of_extra in self.extra for name in EXTRA[kind_of_extra]]
        if extra:
            yield f"also{after}:\n{sts.aligned([extra, [f'{numbers[name]:.4g}' for name in extra]])}"


def with_prompts(evaluator: Any, prompts: Mapping[str, str], usual: str) -> Any:
    """An evaluator of a model that is trained with prompts of queries and documents, and has a `usual` one for others.

    That is its default, which `encode` puts before each text that has no other.
    """
    if isinstance(evaluator, retrieval.Ranking):
        return dataclasses.replace(evaluator, retrieval=with_prompts(evaluator.retrieval, prompts, usual))
    if isinstance(evaluator, retrieval.Retrieval):
        return dataclasses.replace(evaluator, prompts=prompts)
    if not usual:
        return evaluator
    tasks = {}
    for name, task in evaluator.tasks.items():
        first, second = ([usual + text for text in side] for side in (task.first, task.second))
        tasks[name] = task._replace(first=first, second=second)
    return dataclasses.replace(evaluator, tasks=tasks)


def _names(evaluator: Final) -> Iterable[str]:
    """The names of an evaluator's scores in a result."""
    return (evaluator.name,) if isinstance(evaluator, sts.Correlation) else evaluator.tasks


def read_evaluation(spec: EvaluationSpec, devices: Sequence[jax.Device] | None = None) -> Evaluation | None:
    """Reads the data of all evaluators; None when there are none. `devices` are those of the run, None for all."""
    evaluation = None
    if spec.data:
        fit_on = read_postprocess(spec)
        with about("config.eval.data"):
            evaluation = _read_folder_or_file(spec, fit_on)
    return _add_retrieval(spec, devices, evaluation) if spec.retrieval.data else evaluation


def _add_retrieval(
    spec: EvaluationSpec, devices: Sequence[jax.Device] | None, evaluation: Evaluation | None
) -> Evaluation:
    """Adds retrieval to an evaluation: scores at the end and, if asked for, the choice of the checkpoint."""
    fields = spec.retrieval

    def read(split: str, measures: Sequence[str]) -> retrieval.Retrieval:
        with about("config.eval.retrieval.data"):
            tasks = retrieval.read(split_sources(fields.data), split, fields.documents, fields.seed)
        return retrieval.Retrieval(tasks, measures, fields.storage, devices)

    final = read(fields.split, fields.measures)
    if spec.development == RETRIEVAL:
        first = fields.measures[0]
        chooses = retrieval.Ranking(f"eval/{RETRIEVAL}_{first}", read(fields.development, [first]))
        evaluation = (evaluation or Evaluation(chooses, [], True, None))._replace(development=chooses, has_tests=True)
    assert evaluation is not None  # the fields are checked together
    return evaluation._replace(final=[*evaluation.final, final])


def _read_folder_or_file(spec: EvaluationSpec, fit_on: postprocess.Postprocess | None) -> Evaluation:
    data = spec.data
    extra = read_extra(data, spec.extra)
    if local_path(data).is_file():
        if spec.transfer:
            raise UserError(f"{data} is a file, but eval.transfer needs SentEval's data/downstream")
        pairs, _ = sts.read(data, ())
        ((name, whole),) = pairs.items()
        choosing, test = sts.halves(whole, spec.seed, data) if spec.halved else (whole, whole)
        chooses = sts.Correlation(f"eval/{name}", {name: choosing})
        return Evaluation(chooses, [sts.Similarity({name: test})], spec.halved, fit_on, extra)
    chosen_by = f"{spec.development}_dev"
    names = [DEVELOPMENT_SETS[chosen_by]] if chosen_by in DEVELOPMENT_SETS else []  # otherwise retrieval chooses
    development = sts.read(data, names, "dev")[0] if names else {}
    tests, missing = sts.read(data, spec.tasks) if spec.tasks else ({}, [])
    final: list[Final] = [sts.Similarity(tests or development, missing)] if tests or development else []
    if fit_on and tests:
        final.append(sts.Correlation("development", development))
    absent = list(missing)
    if spec.transfer:
        classifiers = transfer.Transfer(*transfer_files.read(data, TRANSFER), spec.transfer_protocol)
        final.append(classifiers)
        absent += classifiers.missing
    if absent:
        processes.say(f"{data}: {', '.join(absent)} not found, and left out")
    return Evaluation(sts.Correlation(f"eval/{chosen_by}", development), final, bool(tests), fit_on, extra)


def read_extra(data: str, names: Sequence[str]) -> dict[str, Extra]:
    """The evaluators of `eval.extra`, by its names.

    Alignment and uniformity are those of STS-B's train, dev and test together, as in the figures of SimCSE's authors
    (`geometry --split all`); the development set alone, measured during training, is `analysis.every`.
    """
    extra: dict[str, Extra] = {}
    for name in (name for name in DEVELOPMENT_SETS if name in names):
        if local_path(data).is_file():
            raise UserError(f"{data} is a file, but eval.extra={name} needs SentEval's data/downstream")
        extra[name] = sts.Correlation(name, sts.read(data, [DEVELOPMENT_SETS[name]], "dev")[0])
    if "geometry" in names:
        extra["geometry"] = geometry.Plane({"alignment and uniformity": geometry.read(data, "all")})
    return extra


def read_postprocess(spec: EvaluationSpec) -> postprocess.Postprocess | None:
    """The post-processing with the sentences that it is fit on; None without post-processing."""
    if not spec.postprocess:
        return None
    with about("config.eval.postprocess_data"):
        return postprocess.read(spec.postprocess, spec.postprocess_data, spec.postprocess_dimensions, spec.data)


def check_postprocess(evaluation: Evaluation | None, size: int) -> None:
    """Refuses a post-processing that cannot be fit to embeddings of this size."""
    if evaluation and evaluation.postprocess:
        with about(f"config.eval.postprocess_data: embeddings of {size} elements"):
            postprocess.check(evaluation.postprocess, size, evaluation.tasks)


def check_sizes(sizes: Sequence[int], whole: int, evaluation: Evaluation | None) -> tuple[int, ...]:
    """Those of the sizes of `matryoshka.dimensions`, the largest first, that are to be scored besides the whole one.

    Prints a note if no objective sees the whole embedding.
    """
    if sizes and sizes[0] > whole:
        raise UserError(f"config.matryoshka.dimensions: {sizes[0]} is more than the embedding's {whole} elements")
    if sizes and sizes[0] < whole:
        processes.say(
            f"config.matryoshka.dimensions: the whole embedding of {whole} elements is not among them, so its last "
            f"{whole - sizes[0]} elements are not trained"
        )
    smaller = tuple(size for size in sizes if size < whole)
    for size in smaller:
        check_postprocess(evaluation, size)
    return smaller


def read_analysis(spec: AnalysisSpec, scored: EvaluationSpec, evaluation: Evaluation | None) -> last_layer.Sample:
    """The sentences on which the last layer is measured during training: by default those of the run's evaluation."""
    development = evaluation.pairs if evaluation else None
    name = spec.data or scored.data
    is_read = (spec.split, scored.development) == ("dev", "stsb")
    if spec.data or development is None or (local_path(name).is_dir() and not is_read):
        with about("config.analysis.data"):
            sentences, _, pairs = read_data(name, split=spec.split)
    else:
        sentences, pairs = development.first_as_read, development
    sentences = [sentence for sentence in sentences if sentence.strip()]
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) < FEWEST_ANALYSED:
        where = f"analysis.data={spec.data}" if spec.data else f"eval.data={scored.data}"
        raise UserError(
            f"config.{where}: has {len(distinct)} distinct sentences to analyse, {FEWEST_ANALYSED} are needed"
        )
    if not pairs:
        pairs, name = development, scored.data
    count = spec.sentences
    rated = last_layer.positives(pairs, count // 2) if pairs else []
    if pairs and not rated:
        processes.say(f"{name}: no pair is rated above 4 of 5, so no alignment is measured")
    return last_layer.Sample(evenly(distinct if spec.repeated_sentences == "drop" else sentences, count), rated)
