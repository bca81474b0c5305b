"""simcse-jax evaluate --model M --data SENTEVAL_FOLDER: scores on STS, transfer, retrieval and mteb."""

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simcse_jax.choices import (
    AGGREGATIONS,
    CUTOFFS,
    MEASURES,
    METRICS,
    MTEB,
    POSTPROCESSING,
    PROTOCOLS,
    RANKINGS,
    RETRIEVAL,
    STORAGES,
    TASKS,
    TRANSFER,
    USUAL,
)
from simcse_jax.commands.command_line import (
    MODEL,
    Parser,
    add_batch_size,
    add_dtype,
    add_pooler,
    add_postprocess,
    add_prompts,
    checked_split,
    warnings_in_a_line,
)
from simcse_jax.config.checks import check_postprocess
from simcse_jax.errors import UserError, no_such
from simcse_jax.host.names import split_label
from simcse_jax.host.outputs import output_file, printing
from simcse_jax.host.storage import local_path, read_json

if TYPE_CHECKING:
    import numpy as np

    from simcse_jax.adapters.mteb import Benchmarks
    from simcse_jax.encoding.arguments import EncodeOptions
    from simcse_jax.evaluation.relatedness import WithRegressor
    from simcse_jax.evaluation.retrieval import Retrieval
    from simcse_jax.evaluation.sts import Similarity
    from simcse_jax.evaluation.transfer import Transfer
    from simcse_jax.simcse import SimCSE

SETTINGS = "retrieval_settings"  # in the scores: the storage and both prompts
SETS = {"sts": TASKS, "transfer": TRANSFER}


class Options(NamedTuple):
    """The options, after all checks that need no file."""

    args: argparse.Namespace
    sts_tasks: list[str]
    transfer_tasks: list[str]
    folders: list[str]  # of retrieval tasks
    benchmarks: list[str]  # tasks of mteb
    metrics: list[str]  # of similarity
    measures: list[str]  # of retrieval
    aggregations: list[str]
    transfer_protocol: str
    output: Path | None
    baseline: dict[str, Any] | None  # earlier scores
    dimensions: list[int]  # of truncated embeddings; empty: the model's own


def main() -> None:
    """The command."""
    run(parse(sys.argv[1:]))


def run(options: Options) -> dict[str, Any]:
    """Scores a model, prints the tables, writes the scores if that is asked for, and returns them.

    The data are read first, so that a mistake in them is reported before a model is loaded.
    """
    args = options.args
    from simcse_jax.encoding.arguments import check_truncation
    from simcse_jax.evaluation import postprocess
    from simcse_jax.host.progress import doing
    from simcse_jax.host.storage import write_atomically
    from simcse_jax.simcse import SimCSE

    evaluators = read(options)
    fit_on = None
    if args.postprocess:
        fit_on = postprocess.read(args.postprocess, args.postprocess_data, args.postprocess_dimensions, args.data)
    model = SimCSE(
        args.model,
        pooler=args.pooler,
        num_layers=args.num_layers,
        batch_size=args.batch_size,
        dtype=args.dtype,
        truncate_dim=args.truncate_dim,
    )
    before = f", prompt {prompt!r}" if (prompt := model.prompt_of(args.prompt, args.prompt_name)) else ""
    if options.dimensions:
        model.truncate_dim = None
    for size in options.dimensions:
        check_truncation(size, model.dimension, "--dimensions")
    before += f", {model.dimension} elements" if model.truncate_dim else ""
    if fit_on:
        for size in options.dimensions or [model.dimension]:
            postprocess.check(fit_on, size, [item for each in evaluators for item in each.tasks.items()])
    after = f", after {args.postprocess} fit on {args.postprocess_data}" if fit_on else ""
    before += encoders(model, args.prompt, args.prompt_name).roles if options.folders or options.benchmarks else ""
    found: dict[int, dict[str, Any]] = {}
    with printing(options.output is not None) as say:
        say(f"{args.label or args.model}: pooler {model.pooler}{' with head' if model.use_head else ''}{before}{after}")
        settings = {"storage": args.storage or "float32", **encoders(model, args.prompt, args.prompt_name).prompts}
        if options.baseline and (others := unlike(options.baseline, settings)):
            say(f"--baseline {args.baseline}: was scored with {others}")
        for size in options.dimensions or [0]:
            scores = found[size] = {}
            with doing(args.postprocess), warnings_in_a_line():
                embed = postprocess.transformed(encoders(model, args.prompt, args.prompt_name, size or None), fit_on)
                for evaluator in evaluators:
                    numbers = evaluator(embed)
                    at = f"{size} elements: " if size else ""
                    say(f"{at}{evaluator.protocol}\n{evaluator.table(numbers)}")
                    scores |= numbers.pop("transfer", {}) | numbers  # whose tasks stand beside those of similarity
                if options.folders:
                    scores[SETTINGS] = settings
        written = found.get(0) or {"truncated": {str(size): scores for size, scores in found.items()}}
        if options.output:
            write_atomically(options.output, json.dumps(written, indent=2) + "\n")
    return written


@dataclasses.dataclass(frozen=True)
class Encoders:
    """A model as the options say, with progress: an evaluator's `embed`, and its two roles in retrieval."""

    model: "SimCSE"
    options: "EncodeOptions"  # in place of the model's own
    prompts: dict[str, str]  # query_prompt, document_prompt
    roles: str  # those of them that are not the model's usual one, for people

    def __call__(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N sentences."""
        return self.model.encode(sentences, show_progress_bar=True, **self.options)

    def encode_query(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N queries."""
        return self.model.encode_query(sentences, show_progress_bar=True, **self.options)

    def encode_document(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N documents."""
        return self.model.encode_document(sentences, show_progress_bar=True, **self.options)

    @property
    def similarity_fn_name(self) -> str:
        """How the model compares embeddings."""
        return self.model.similarity_fn_name


def encoders(model: "SimCSE", prompt: str | None, prompt_name: str | None, size: int | None = None) -> Encoders:
    """The model's, with the prompt that is given; otherwise queries and documents have their own.

    `size` is the number of elements that embeddings keep; None: as the model says.
    """
    from simcse_jax.encoding.arguments import EncodeOptions, with_prompt_of
    from simcse_jax.huggingface.sentence_transformers import DOCUMENT_PROMPTS

    given: EncodeOptions = {"prompt": prompt, "prompt_name": prompt_name, "truncate_dim": size}
    prompts, roles = {}, ""
    for side, role, names in (("query", "queries", ("query",)), ("document", "documents", DOCUMENT_PROMPTS)):
        own = with_prompt_of(given, model.prompts, *names)
        prompts[f"{side}_prompt"] = text = model.prompt_of(own["prompt"], own["prompt_name"])
        roles += f", {role} with prompt {text!r}" if text != model.prompt_of(prompt, prompt_name) else ""
    return Encoders(model, given, prompts, roles)


def unlike(baseline: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """How earlier scores of retrieval were made otherwise, for people; empty: they were not.

    Such scores may be what one wants to compare with, so they are named, not refused.
    """
    earlier = baseline.get(SETTINGS)
    if not isinstance(earlier, dict):
        return f"unknown settings: it has no {SETTINGS}"
    others = {name: earlier.get(name) for name, value in settings.items() if earlier.get(name) != value}
    return ", ".join(f"{name} {value!r} instead of {settings[name]!r}" for name, value in others.items())


def read(options: Options) -> "list[Similarity | WithRegressor | Transfer | Retrieval | Benchmarks]":
    """The evaluators of the tasks in the options; prints which tasks have no data.

    Raises:
      UserError: for anything that is wrong with the data.
    """
    from simcse_jax.evaluation import relatedness, retrieval, sts, transfer, transfer_files

    args = options.args
    evaluators: list[Similarity | WithRegressor | Transfer | Retrieval | Benchmarks] = []
    if options.sts_tasks:
        pairs, missing = sts.read(args.data, options.sts_tasks, args.split)
        say_missing(args.data, missing, "has no development set" if args.split == "dev" else "not found")
        similarity = sts.Similarity(pairs, missing, options.metrics, options.aggregations, every_average=True)
        graded = relatedness.read(args.data, list(pairs)) if args.regressor else {}
        evaluators.append(relatedness.WithRegressor(similarity, graded) if graded else similarity)
    if options.transfer_tasks:
        classes, missing = transfer_files.read(args.data, options.transfer_tasks)
        say_missing(args.data, missing, "not found")
        evaluators.append(transfer.Transfer(classes, missing, options.transfer_protocol))
    if options.folders:
        tasks = retrieval.read(options.folders, args.split, args.documents or 0, args.documents_seed or 0)
        scored = retrieval.Retrieval(tasks, options.measures, args.storage or "float32", per_query=True)
        evaluators.append(scored.with_baseline(options.baseline, f"--baseline {args.baseline}"))
    if options.benchmarks:
        from simcse_jax.adapters import mteb

        with warnings_in_a_line():
            evaluators.append(mteb.read(options.benchmarks))
    return evaluators


def say_missing(data: str, tasks: list[str], why: str) -> None:
    """Prints the tasks that are left out."""
    if tasks:
        print(f"{data}: {', '.join(tasks)} {why}; left out, so no average is given", flush=True)


def choose(option: str, text: str, known: Collection[str], what: str) -> list[str]:
    """The names of a comma-separated list, each once.

    Raises:
      UserError: when the list is empty, or a name is not known.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise no_such(option, what, name, known)
    if not names:
        raise UserError(f"{option} is empty; the names are {', '.join(known)}")
    return names


def after_prefix(names: Sequence[str], prefix: str, thing: str, what: str) -> tuple[list[str], list[str]]:
    """The other names, and what follows the prefix in those that have it, `PREFIX:THING`, each once.

    Args:
      names: of tasks.
      prefix: without the colon.
      thing: in capitals, `what` it is with an article: for the error.

    Raises:
      UserError: when nothing follows.
    """
    names = [name.strip() for name in names]
    found = list(dict.fromkeys(name.partition(":")[2] for name in names if name.startswith(f"{prefix}:")))
    if "" in found:
        raise UserError(f"--tasks {prefix}:{thing}: name {what}")
    return [name for name in names if not name.startswith(f"{prefix}:")], found


def parse(argv: Sequence[str]) -> Options:
    """The command line.

    Raises:
      UserError: naming the option that is wrong, or has no effect with the others.
    """
    parser = Parser(
        "evaluate",
        description="Scores a model on textual similarity (STS), transfer and retrieval tasks. Needs a model, and the "
        "tasks' data in SentEval's layout or a file of graded pairs, or for retrieval in BEIR's layout; the package "
        "mteb fetches those of its own tasks. Prints tables; writes the scores to --output if it is given.",
    )
    parser.add_argument(
        "--model", required=True, metavar="NAME[=LABEL]", help=f"{MODEL}; LABEL: its name in what is printed"
    )
    parser.add_argument("--data", help="for STS and transfer: SentEval's data/downstream, or a file of graded pairs")
    every = f"{', '.join((*TASKS, *TRANSFER))}; sts and transfer mean all tasks of a kind; {RETRIEVAL}:FOLDER is one "
    every += f"of retrieval, with corpus.jsonl, queries.jsonl and qrels/test.tsv, {MTEB}:NAME one of the package mteb; "
    every += "both may be given several times"
    parser.add_argument("--tasks", default="sts", help=f"comma-separated: {every} (default: sts)")
    parser.add_argument(
        "--metric",
        help=f"comma-separated: for STS {', '.join(METRICS)} (default: spearman); for retrieval "
        f"{', '.join(RANKINGS)}, each @K with K of {', '.join(map(str, CUTOFFS))} (default: {', '.join(USUAL)})",
    )
    parser.add_argument(
        "--aggregation",
        help=f"over an STS task's subsets, comma-separated: {', '.join(AGGREGATIONS)} (default: all)",
    )
    parser.add_argument("--regressor", action="store_true", help="train SentEval's regressor too, for STS-B and SICK-R")
    protocols = "; ".join(f"{name}: {meaning}" for name, meaning in PROTOCOLS.items())
    parser.add_argument("--transfer-protocol", choices=PROTOCOLS, help=f"for transfer; {protocols} (default: sklearn)")
    parser.add_argument(
        "--split", choices=("dev", "test"), help="default: test; dev is for STS-B, SICK-R and retrieval alone"
    )
    parser.add_argument(
        "--documents",
        type=int,
        least=1,
        most=math.inf,
        help="for retrieval: keep so many of the corpus, all judged ones and others drawn at random (default: all)",
    )
    drawn = "of that draw (default: 0)"
    parser.add_argument("--documents-seed", type=int, least=0, most=math.inf, only="--documents", help=drawn)
    parser.add_argument(
        "--storage", choices=STORAGES, help="for retrieval: round the documents' embeddings to it (default: float32)"
    )
    parser.add_argument(
        "--baseline",
        metavar="SCORES",
        help="for retrieval: an earlier --output of another model, to compare with: differences, and p-values of a "
        "paired t-test over the queries",
    )
    add_pooler(parser)
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    add_batch_size(parser)
    add_dtype(parser)
    add_prompts(parser)
    parser.add_argument(
        "--dimensions",
        metavar="N,N,…",
        help="score the first N elements of each embedding, for each of these numbers (default: as --truncate-dim)",
    )
    add_postprocess(parser, POSTPROCESSING, "change the embeddings")
    parser.add_argument(
        "--output",
        help="a JSON file for the scores, with all metrics, aggregations, subsets and folds, and those of each query",
    )
    return _checked(parser.parse_args(argv))


def _checked(args: argparse.Namespace) -> Options:
    """The options after the checks."""
    args.model, args.label = split_label(args.model)
    named, folders = after_prefix(args.tasks.split(","), RETRIEVAL, "FOLDER", "a folder")
    named, benchmarks = after_prefix(named, MTEB, "NAME", "a task of mteb")
    if any(named) or not folders + benchmarks:
        known = (*TASKS, *TRANSFER, *SETS, f"{RETRIEVAL}:FOLDER", f"{MTEB}:NAME")
        named = choose("--tasks", ",".join(named), known, "task")
        named = list(dict.fromkeys(task for name in named for task in SETS.get(name, (name,))))
    sts_tasks, transfer_tasks = ([task for task in named if task in tasks] for tasks in (TASKS, TRANSFER))
    asked = choose("--metric", args.metric, (*METRICS, *MEASURES), "metric") if args.metric is not None else []
    metrics, measures = ([name for name in asked if name in known] for known in (METRICS, MEASURES))
    for option, value, chosen, kind in (
        ("--data", args.data, sts_tasks + transfer_tasks, "similarity and transfer"),
        ("--transfer-protocol", args.transfer_protocol, transfer_tasks, "transfer"),
        (f"--metric {','.join(metrics)}", metrics or None, sts_tasks, "similarity"),
        (f"--metric {','.join(measures)}", measures or None, folders, RETRIEVAL),
        ("--aggregation", args.aggregation, sts_tasks, "similarity"),
        ("--documents", args.documents, folders, RETRIEVAL),
        ("--documents-seed", args.documents_seed, folders, RETRIEVAL),
        ("--storage", args.storage, folders, RETRIEVAL),
        ("--baseline", args.baseline, folders, RETRIEVAL),
    ):
        if value is not None and not chosen:
            raise UserError(f"{option}: is for {kind} tasks, and --tasks has none")
    if args.data is None and (sts_tasks or transfer_tasks):
        raise UserError(
            f"--data is missing; {(sts_tasks + transfer_tasks)[0]} needs SentEval's data/downstream, or a "
            "file of graded pairs"
        )
    aggregations = choose("--aggregation", args.aggregation or "all", AGGREGATIONS, "aggregation")
    if args.split == "dev" and (transfer_tasks or args.regressor or benchmarks):
        own = [*transfer_tasks, *(f"{MTEB}:{name}" for name in benchmarks)]
        what = f"--tasks {own[0]}" if own else "--regressor"
        raise UserError(f"--split dev is for similarity and retrieval; {what} makes its own use of development data")
    particular = [name for name in args.tasks.split(",") if name.strip() in TASKS]
    if particular and args.data is not None and local_path(args.data).is_file():
        raise UserError(
            f"--tasks {particular[0].strip()}: {args.data} is a file, scored under its own name; leave the task out, "
            "or give SentEval's folder"
        )
    args.split = checked_split(args.split, None if folders else args.data)
    if args.regressor and not {"STSBenchmark", "SICKRelatedness"} & set(sts_tasks):
        raise UserError("--regressor is for STSBenchmark and SICKRelatedness; --tasks has neither")
    check_postprocess(args.postprocess, args.postprocess_data, args.postprocess_dimensions, "--postprocess", "-")
    if args.postprocess and folders + benchmarks:
        raise UserError(
            "--postprocess: is for similarity and transfer; leave it out, or the tasks of retrieval and mteb"
        )
    inputs = {"--data": args.data, "--model": args.model, "--postprocess-data": args.postprocess_data}
    inputs |= {"--baseline": args.baseline, **{f"--tasks {RETRIEVAL}:{folder}": folder for folder in folders}}
    output = None if args.output is None else output_file(args.output, inputs)
    dimensions = read_dimensions(args)
    protocol = args.transfer_protocol or "sklearn"
    baseline = None if args.baseline is None else read_json(local_path(args.baseline))
    return Options(
        *(args, sts_tasks, transfer_tasks, folders, benchmarks, metrics or ["spearman"], measures or [*USUAL]),
        *(aggregations, protocol, output, baseline, dimensions),
    )


def read_dimensions(args: argparse.Namespace) -> list[int]:
    """The numbers of --dimensions.

    Raises:
      UserError: for what is no list of different whole numbers, or options that it does not go with.
    """
    if args.dimensions is None:
        return []
    sizes = [part.strip() for part in args.dimensions.split(",")]
    if not all(re.fullmatch("[1-9][0-9]{0,8}", size) for size in sizes) or len(set(sizes)) < len(sizes):
        raise UserError(f"--dimensions {args.dimensions}: must be whole numbers from 1, each once, with commas between")
    for option in ("truncate_dim", "baseline"):
        if getattr(args, option) is not None:
            raise UserError(f"--{option.replace('_', '-')}: is for one size, and --dimensions has its own")
    return [int(size) for size in sizes]
