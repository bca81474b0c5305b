"""simcse-jax evaluate --model M --data SENTEVAL_FOLDER: scores on STS, transfer, retrieval and mteb."""

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.choices import (
    AGGREGATIONS,
    CUTOFFS,
    MEASURES,
    METRICS,
    MTEB,
    PROTOCOLS,
    RANKINGS,
    RETRIEVAL,
    TASKS,
    TRANSFER,
    USUAL,
)
from simcse_jax.commands.verbs import (
    MODEL,
    BatchSize,
    Counts,
    Dtype,
    Names,
    NumLayers,
    Pooler,
    Prompt,
    PromptName,
    TruncateDim,
    verb,
)
from simcse_jax.errors import UserError, no_such
from simcse_jax.host.names import split_label
from simcse_jax.host.outputs import output_file, printing
from simcse_jax.host.storage import local_path, read_json

if TYPE_CHECKING:
    import numpy as np

    from simcse_jax.evaluation.sts import Similarity
    from simcse_jax.simcse import SimCSE

SETTINGS = "retrieval_settings"  # in the scores: the storage and both prompts
SETS = {"sts": TASKS, "transfer": TRANSFER}


class Tasks(NamedTuple):
    """The names in `--tasks`, by kind."""

    sts: list[str]
    transfer: list[str]
    folders: list[str]  # of retrieval tasks
    benchmarks: list[str]  # of mteb


@verb
def evaluate(
    model: Annotated[str, Parameter(help=f"{MODEL} NAME=LABEL names it in what is printed.")],
    data: str | None = None,
    *,
    tasks: Annotated[
        Names,
        Parameter(
            help=f"{', '.join((*TASKS, *TRANSFER))}; sts and transfer mean all tasks of a kind; {RETRIEVAL}:FOLDER is "
            f"one of retrieval, with corpus.jsonl, queries.jsonl and qrels/test.tsv, {MTEB}:NAME one of the package "
            "mteb."
        ),
    ] = ("sts",),
    metric: Annotated[
        Names,
        Parameter(
            help=f"For STS {', '.join(METRICS)}, by default spearman; for retrieval {', '.join(RANKINGS)}, each @K "
            f"with K of {', '.join(map(str, CUTOFFS))}, by default {', '.join(USUAL)}."
        ),
    ] = (),
    aggregation: Annotated[Names, Parameter(help=f"Over an STS task's subsets: {', '.join(AGGREGATIONS)}.")] = ("all",),
    regressor: bool = False,
    transfer_protocol: Annotated[
        Literal["sklearn", "pytorch", "pytorch_fast"],
        Parameter(help=f"The classifier: {'; '.join(f'{name}: {text}' for name, text in PROTOCOLS.items())}."),
    ] = "sklearn",
    split: Literal["dev", "test"] = "test",
    documents: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    documents_seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    storage: Literal["float32", "float16", "bfloat16"] = "float32",
    baseline: str | None = None,
    pooler: Pooler = None,
    num_layers: NumLayers = 0,
    batch_size: BatchSize = 64,
    dtype: Dtype = "float32",
    prompt: Prompt = None,
    prompt_name: PromptName = None,
    truncate_dim: TruncateDim = None,
    dimensions: Counts = (),
    postprocess: Literal["whitening", "flow"] | None = None,
    postprocess_data: str = "",
    postprocess_dimensions: Annotated[int, Parameter(validator=Number(gte=0), show_default=False)] = 0,
    output: str | None = None,
) -> dict[str, Any]:
    """Scores a model on textual similarity (STS), transfer and retrieval tasks.

    Needs a model, and the tasks' data in SentEval's layout or a file of graded pairs, or for retrieval in BEIR's
    layout; the package mteb fetches those of its own tasks. Prints tables; writes the scores to the output if it is
    given.

    Args:
      data: For STS and transfer: SentEval's data/downstream, or a file of graded pairs.
      regressor: Train SentEval's regressor too, for STS-B and SICK-R.
      split: The development sets are for STS-B, SICK-R and retrieval alone.
      documents: For retrieval: keep so many of the corpus, all judged ones and others drawn at random. By default all.
      documents_seed: Of that draw.
      storage: For retrieval: round the documents' embeddings to it.
      baseline: For retrieval: an earlier output of another model, to compare with: differences, and p-values of a
        paired t-test over the queries.
      dimensions: Score the first elements of each embedding, for each of these numbers. By default as truncate-dim.
      postprocess: Change the embeddings of STS and transfer. By default nothing does.
      postprocess_data: Sentences to fit it on: a file; target, for each task those that are scored; or target_all, for
        each task those of its train, dev and test sets.
      postprocess_dimensions: Dimensions that whitening keeps. By default all.
      output: A JSON file for the scores, with all metrics, aggregations, subsets and folds, and those of each query.

    Returns:
      The scores, as the output has them.

    Raises:
      UserError: for any mistake in the options, the data or the model.
    """
    model, label = split_label(model)
    wanted = read_tasks(tasks)
    metric = choose_names("--metric", metric, (*METRICS, *MEASURES), "metric")
    aggregation = choose_names("--aggregation", aggregation, AGGREGATIONS, "aggregation") or ["all"]
    if not data and (task := next(iter(wanted.sts + wanted.transfer), "")):
        raise UserError(f"--data is missing; {task} needs SentEval's data/downstream, or a file of graded pairs")
    if postprocess and not postprocess_data:
        raise UserError("--postprocess-data: must be set for --postprocess: a file of sentences, target or target_all")
    if postprocess and wanted.folders + wanted.benchmarks:
        raise UserError("--postprocess: is for similarity and transfer; leave out the tasks of retrieval and mteb")
    data = data or ""
    inputs = {"--data": data, "--model": model, "--postprocess-data": postprocess_data, "--baseline": baseline}
    inputs |= {f"--tasks {RETRIEVAL}:{folder}": folder for folder in wanted.folders}
    path = None if output is None else output_file(output, inputs)
    earlier = read_json(local_path(baseline)) if baseline is not None and wanted.folders else None
    from simcse_jax.encoding.arguments import check_truncation
    from simcse_jax.evaluation import postprocess as processing
    from simcse_jax.evaluation import retrieval, transfer, transfer_files
    from simcse_jax.host.progress import doing
    from simcse_jax.host.storage import write_atomically
    from simcse_jax.simcse import SimCSE

    # The data are read before a model is loaded, so that a mistake in them is reported immediately.
    evaluators: list[Any] = []
    if wanted.sts:
        metrics = [name for name in metric if name in METRICS] or ["spearman"]
        evaluators.append(read_similarity(data, wanted.sts, split, metrics, aggregation, regressor))
    if wanted.transfer:
        classes, missing = transfer_files.read(data, wanted.transfer)
        say_missing(data, missing, "not found")
        evaluators.append(transfer.Transfer(classes, missing, transfer_protocol))
    if wanted.folders:
        collections = retrieval.read(wanted.folders, split, documents or 0, documents_seed)
        measures = [name for name in metric if name in MEASURES] or USUAL
        scored = retrieval.Retrieval(collections, measures, storage, per_query=True)
        evaluators.append(scored.with_baseline(earlier, f"--baseline {baseline}"))
    if wanted.benchmarks:
        from simcse_jax.adapters import mteb

        evaluators.append(mteb.read(wanted.benchmarks))
    fit_on = processing.read(postprocess, postprocess_data, postprocess_dimensions, data) if postprocess else None
    opened = SimCSE(
        model, pooler=pooler, num_layers=num_layers, batch_size=batch_size, dtype=dtype, truncate_dim=truncate_dim
    )
    if dimensions:
        opened.truncate_dim = None
    for size in dimensions:
        check_truncation(size, opened.dimension, "--dimensions")
    if fit_on:
        for size in dimensions or [opened.dimension]:
            processing.check(fit_on, size, [item for evaluator in evaluators for item in evaluator.tasks.items()])
    encoder = Encoders(opened, prompt, prompt_name)
    about = f"{label or model}: {describe(opened, prompt, prompt_name)}"
    about += encoder.roles if wanted.folders or wanted.benchmarks else ""
    about += f", after {postprocess} fit on {postprocess_data}" if fit_on else ""
    settings = {"storage": storage, **encoder.prompts}
    by_size: dict[int, dict[str, Any]] = {}
    with printing(path is not None) as say:
        say(about)
        if earlier and (difference := describe_differences(earlier, settings)):
            say(f"--baseline {baseline}: was scored with {difference}")
        for size in dimensions or [0]:
            with doing(postprocess or ""):
                embed = processing.transformed(Encoders(opened, prompt, prompt_name, size or None), fit_on)
                by_size[size] = score(evaluators, embed, f"{size} elements: " if size else "", say)
            if wanted.folders:
                by_size[size][SETTINGS] = settings
        written = by_size.get(0) or {"truncated": {str(size): scores for size, scores in by_size.items()}}
        if path:
            write_atomically(path, json.dumps(written, indent=2) + "\n")
    return written


class Encoders:
    """A model as the options say, with progress: an evaluator's `embed`, and its two roles in retrieval."""

    def __init__(self, model: "SimCSE", prompt: str | None, prompt_name: str | None, size: int | None = None):
        """Without a prompt, queries and documents have the model's own.

        `size` is the number of elements that embeddings keep; None: as the model says.
        """
        from simcse_jax.encoding.arguments import EncodeOptions, with_prompt_of
        from simcse_jax.huggingface.sentence_transformers import DOCUMENT_PROMPTS

        options: EncodeOptions = {"prompt": prompt, "prompt_name": prompt_name, "truncate_dim": size}
        self.model, self.options = model, options
        self.encode_query = functools.partial(model.encode_query, show_progress_bar=True, **options)
        self.encode_document = functools.partial(model.encode_document, show_progress_bar=True, **options)
        self._encode = functools.partial(model.encode, show_progress_bar=True, **options)
        self.similarity_fn_name = model.similarity_fn_name
        self.prompts: dict[str, str] = {}  # query_prompt, document_prompt
        self.roles = ""  # the prompts that are not the model's usual ones, as text
        for side, role, names in (("query", "queries", ("query",)), ("document", "documents", DOCUMENT_PROMPTS)):
            of_role = with_prompt_of(options, model.prompts, *names)
            self.prompts[f"{side}_prompt"] = text = model.prompt_of(of_role["prompt"], of_role["prompt_name"])
            self.roles += f", {role} with prompt {text!r}" if text != model.prompt_of(prompt, prompt_name) else ""

    def __call__(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N sentences."""
        return self._encode(sentences)


def describe_differences(baseline: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """How the settings of earlier retrieval scores differ, for a message; empty if they do not.

    The comparison may be intended, so the differences are printed, not refused.
    """
    earlier = baseline.get(SETTINGS)
    if not isinstance(earlier, dict):
        return f"unknown settings: it has no {SETTINGS}"
    different = {name: value for name, value in settings.items() if earlier.get(name) != value}
    return ", ".join(f"{name} {earlier.get(name)!r} instead of {value!r}" for name, value in different.items())


def read_similarity(
    data: str, tasks: list[str], split: str, metrics: Sequence[str], aggregations: Sequence[str], regressor: bool
) -> "Similarity":
    """The evaluator of the STS tasks; prints which have no data."""
    from simcse_jax.evaluation import relatedness, sts

    pairs, missing = sts.read(data, tasks, split)
    say_missing(data, missing, "has no development set" if split == "dev" else "not found")
    options: dict[str, Any] = {"metrics": metrics, "aggregations": aggregations, "every_average": True}
    if regressor:
        return relatedness.WithRegressor(pairs, missing, graded=relatedness.read(data, [*pairs]), **options)
    return sts.Similarity(pairs, missing, **options)


def describe(model: "SimCSE", prompt: str | None, prompt_name: str | None) -> str:
    """How the model encodes, as text."""
    parts = [f"pooler {model.pooler}{' with head' if model.use_head else ''}"]
    if before := model.prompt_of(prompt, prompt_name):
        parts.append(f"prompt {before!r}")
    if model.truncate_dim:
        parts.append(f"{model.dimension} elements")
    return ", ".join(parts)


def score(evaluators: Sequence[Any], embed: Any, at: str, say: Callable[[str], None]) -> dict[str, Any]:
    """The numbers of all evaluators, whose tables are printed; `at` stands before each."""
    scores: dict[str, Any] = {}
    for evaluator in evaluators:
        numbers = evaluator(embed)
        say(f"{at}{evaluator.protocol}\n{evaluator.table(numbers)}")
        scores |= numbers.pop("transfer", {}) | numbers  # whose tasks stand beside those of similarity
    return scores


def say_missing(data: str, tasks: list[str], why: str) -> None:
    """Prints the tasks that are left out."""
    if tasks:
        print(f"{data}: {', '.join(tasks)} {why}; left out, so no average is given", flush=True)


def choose_names(option: str, names: Sequence[str], choices: Collection[str], kind: str) -> list[str]:
    """The names of an option, each once; refuses one that is not known."""
    for name in names:
        if name not in choices:
            raise no_such(option, kind, name, choices)
    return list(dict.fromkeys(names))


def read_tasks(names: Sequence[str]) -> Tasks:
    """The tasks that are named, each once; refuses unknown ones, and none."""
    named: dict[str, list[str]] = {RETRIEVAL: [], MTEB: []}
    plain = []
    for name in dict.fromkeys(names):
        prefix, _, rest = name.partition(":")
        if rest and prefix in named:
            named[prefix].append(rest)
        else:
            plain.append(name)
    choices = (*TASKS, *TRANSFER, *SETS, f"{RETRIEVAL}:FOLDER", f"{MTEB}:NAME")
    if not names:
        raise UserError(f"--tasks is empty; the names are {', '.join(choices)}")
    chosen = [task for name in choose_names("--tasks", plain, choices, "task") for task in SETS.get(name, (name,))]
    sts, transfer = ([task for task in dict.fromkeys(chosen) if task in tasks] for tasks in (TASKS, TRANSFER))
    return Tasks(sts, transfer, *named.values())
