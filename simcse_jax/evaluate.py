"""python -m simcse_jax.evaluate --model M --data SENTEVAL_FOLDER: STS and transfer scores of any model."""

import argparse
import functools
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simcse_jax.command_line import (
    MODEL,
    Parser,
    add_dtype,
    add_postprocess,
    add_prompts,
    run_command,
    warnings_in_a_line,
    with_new_spellings,
)
from simcse_jax.config.checks import check_postprocess
from simcse_jax.errors import UserError, no_such
from simcse_jax.evaluation.tasks import AGGREGATIONS, METRICS, POSTPROCESSING, PROTOCOLS, TASKS, TRANSFER
from simcse_jax.models.config import POOLERS
from simcse_jax.outputs import output_file, printing

if TYPE_CHECKING:
    from simcse_jax.evaluation.relatedness import WithRegressor
    from simcse_jax.evaluation.sts import Similarity
    from simcse_jax.evaluation.transfer import Transfer

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


class Options(NamedTuple):
    """The options, after all checks that need no file."""

    args: argparse.Namespace
    sts_tasks: list[str]
    transfer_tasks: list[str]
    metrics: list[str]
    aggregations: list[str]
    transfer_protocol: str
    output: Path | None


def parse() -> Options:
    """The command line.

    Raises:
      UserError: naming the option that is wrong, or has no effect with the others.
    """
    parser = Parser(
        prog="simcse_jax.evaluate",
        description="Scores a model on textual similarity (STS) and transfer tasks. Needs a model, and the tasks' data "
        "in SentEval's layout or a file of graded pairs. Prints tables; writes the scores to --output if it is given.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument("--data", required=True, help="SentEval's data/downstream, or a file of graded pairs")
    every = f"{', '.join((*TASKS, *TRANSFER))}; sts and transfer mean all tasks of a kind"
    parser.add_argument("--tasks", default="sts", help=f"comma-separated: {every} (default: sts)")
    parser.add_argument("--metric", help=f"for STS, comma-separated: {', '.join(METRICS)} (default: spearman)")
    parser.add_argument(
        "--aggregation",
        help=f"over an STS task's subsets, comma-separated: {', '.join(AGGREGATIONS)} (default: all)",
    )
    parser.add_argument("--regressor", action="store_true", help="train SentEval's regressor too, for STS-B and SICK-R")
    protocols = "; ".join(f"{name}: {meaning}" for name, meaning in PROTOCOLS.items())
    parser.add_argument("--transfer-protocol", choices=PROTOCOLS, help=f"for transfer; {protocols} (default: sklearn)")
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="dev is for STS-B and SICK-R alone")
    parser.add_argument("--pooler", choices=POOLERS, help="from tokens to an embedding (default: the model's own)")
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    add_dtype(parser)
    add_prompts(parser)
    add_postprocess(parser, POSTPROCESSING, "change the embeddings")
    parser.add_argument(
        "--output", help="a JSON file for the scores, with all metrics, aggregations, subsets and folds"
    )
    renamed = {"--compute-dtype": "--dtype", "--grid": "--transfer-protocol"}
    args = parser.parse_args(with_new_spellings(parser.spelled_out(sys.argv[1:], renamed), renamed))
    named = choose("--tasks", args.tasks, (*TASKS, *TRANSFER, *SETS), "task")
    named = list(dict.fromkeys(task for name in named for task in SETS.get(name, (name,))))
    sts_tasks, transfer_tasks = ([task for task in named if task in tasks] for tasks in (TASKS, TRANSFER))
    for option, value, chosen, kind in (
        ("--transfer-protocol", args.transfer_protocol, transfer_tasks, "transfer"),
        ("--metric", args.metric, sts_tasks, "similarity"),
        ("--aggregation", args.aggregation, sts_tasks, "similarity"),
    ):
        if value is not None and not chosen:
            raise UserError(f"{option}: is for {kind} tasks, and --tasks has none")
    metrics = choose("--metric", args.metric or "spearman", METRICS, "metric")
    aggregations = choose("--aggregation", args.aggregation or "all", AGGREGATIONS, "aggregation")
    if args.split == "dev" and (transfer_tasks or args.regressor):
        what = f"--tasks {transfer_tasks[0]}" if transfer_tasks else "--regressor"
        raise UserError(f"--split dev is for similarity alone; {what} makes its own use of development data")
    if args.regressor and not {"STSBenchmark", "SICKRelatedness"} & set(sts_tasks):
        raise UserError("--regressor is for STSBenchmark and SICKRelatedness; --tasks has neither")
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    check_postprocess(args.postprocess, args.postprocess_data, args.postprocess_dimensions, "--postprocess", "-")
    inputs = {"--data": args.data, "--model": args.model, "--postprocess-data": args.postprocess_data}
    output = None if args.output is None else output_file(args.output, inputs)
    protocol = args.transfer_protocol or "sklearn"
    return Options(args, sts_tasks, transfer_tasks, metrics, aggregations, protocol, output)


def main() -> None:
    """Reads the data first, so that a mistake in it is reported before a model is loaded."""
    options = parse()
    args = options.args
    from simcse_jax.evaluation import postprocess
    from simcse_jax.progress import doing
    from simcse_jax.simcse import SimCSE
    from simcse_jax.storage import write_atomically

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
    chosen = {"prompt": args.prompt, "prompt_name": args.prompt_name}
    before = f", prompt {prompt!r}" if (prompt := model.prompt_of(**chosen)) else ""
    before += f", {model.dimension} elements" if model.truncate_dim else ""
    if fit_on:
        postprocess.check(fit_on, model.dimension, [item for each in evaluators for item in each.tasks.items()])
    after = f", after {args.postprocess} fit on {args.postprocess_data}" if fit_on else ""
    encode = functools.partial(model.encode, show_progress_bar=True, **chosen)
    scores: dict[str, Any] = {}
    with printing(options.output is not None) as say:
        say(f"{args.model}: pooler {model.pooler}{' with head' if model.use_head else ''}{before}{after}")
        with doing(args.postprocess), warnings_in_a_line():
            embed = postprocess.applied(encode, fit_on)
            for evaluator in evaluators:
                numbers = evaluator(embed)
                say(f"{evaluator.protocol}\n{evaluator.table(numbers)}")
                scores |= evaluator.flat(numbers)
        if options.output:
            write_atomically(options.output, json.dumps(scores, indent=2) + "\n")


def read(options: Options) -> "list[Similarity | WithRegressor | Transfer]":
    """The evaluators of the tasks in the options; prints which tasks have no data.

    Raises:
      UserError: for anything that is wrong with the data.
    """
    from simcse_jax.evaluation import relatedness, sts, transfer, transfer_files

    args = options.args
    evaluators: list[sts.Similarity | relatedness.WithRegressor | transfer.Transfer] = []
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
    return evaluators


def say_missing(data: str, tasks: list[str], why: str) -> None:
    """Prints the tasks that are left out."""
    if tasks:
        print(f"{data}: {', '.join(tasks)} {why}; left out, so no average is given", flush=True)


if __name__ == "__main__":
    run_command(main)
