"""The options of the command evaluate."""

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.commands.command_line import (
    MODEL,
    Parser,
    add_dtype,
    add_postprocess,
    add_prompts,
    checked_split,
    with_new_spellings,
)
from simcse_jax.config.checks import check_postprocess
from simcse_jax.errors import UserError, no_such
from simcse_jax.evaluation.tasks import (
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
from simcse_jax.host.outputs import output_file
from simcse_jax.host.storage import local_path, read_json
from simcse_jax.models.config import POOLERS

SETS = {"sts": TASKS, "transfer": TRANSFER}


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


def parse() -> Options:
    """The command line.

    Raises:
      UserError: naming the option that is wrong, or has no effect with the others.
    """
    parser = Parser(
        prog="simcse_jax.commands.evaluate",
        description="Scores a model on textual similarity (STS), transfer and retrieval tasks. Needs a model, and the "
        "tasks' data in SentEval's layout or a file of graded pairs, or for retrieval in BEIR's layout; the package "
        "mteb fetches those of its own tasks. Prints tables; writes the scores to --output if it is given.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
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
        help="for retrieval: keep so many of the corpus, all judged ones and others drawn at random (default: all)",
    )
    parser.add_argument("--documents-seed", type=int, help="of that draw (default: 0)")
    parser.add_argument(
        "--storage", choices=STORAGES, help="for retrieval: round the documents' embeddings to it (default: float32)"
    )
    parser.add_argument(
        "--baseline",
        metavar="SCORES",
        help="for retrieval: an earlier --output of another model, to compare with: differences, and p-values of a "
        "paired t-test over the queries",
    )
    parser.add_argument("--pooler", choices=POOLERS, help="from tokens to an embedding (default: the model's own)")
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
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
    renamed = {"--compute-dtype": "--dtype", "--grid": "--transfer-protocol"}
    return _checked(parser.parse_args(with_new_spellings(parser.spelled_out(sys.argv[1:], renamed), renamed)))


def _checked(args: argparse.Namespace) -> Options:
    """The options after the checks."""
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
    for option, value, least in (("documents", args.documents, 1), ("documents-seed", args.documents_seed, 0)):
        if value is not None and value < least:
            raise UserError(f"--{option} {value}: must be {least} or more")
    if args.documents_seed is not None and args.documents is None:
        raise UserError("--documents-seed: is for --documents, which is not given")
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
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
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
