"""Scoring all STS files: `simcse_jax.evaluation.sts` and sentence-transformers with SciPy, in turn.

    python -m benchmarks.sts --data SentEval/data/downstream [--tasks STS12,STSBenchmark] [--output FILE]

A round reads the files, encodes the sentences of all tasks and computes Spearman's correlation of each, with a model
that is loaded and compiled. Ours is `sts.evaluate` with `SimCSE.encode`, which encodes all tasks' distinct sentences in
one call; theirs encodes the first sentences of a task, then the second ones, and gives the cosines to
`scipy.stats.spearmanr`. Work is counted in pairs. Needs SentEval's files, or some of them: those missing are left out.
"""

import argparse
import warnings
from typing import Any

from benchmarks import side_by_side
from benchmarks.contender import Done, Round
from benchmarks.encoders import our_encode, their_encode
from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from benchmarks.side_by_side import Contender
from simcse_jax.choices import TASKS
from simcse_jax.commands.command_line import run_command
from simcse_jax.commands.evaluate import choose_names
from simcse_jax.evaluation import sts
from simcse_jax.host.outputs import output_file


def ours(data: str, tasks: list[str], **options: Any) -> Round:
    """As a user of ours does it; for the options see `benchmarks.encoders.our_encode`."""
    warnings.simplefilter("ignore")
    encode = our_encode(**options)

    def do_round() -> Done:
        pairs, _ = sts.read(data, tasks)
        results = sts.evaluate(encode, pairs)
        scores = {task: result["spearman"] for task, result in results.items()}
        return Done(sum(len(each.gold) for each in pairs.values()), {"scores": scores})

    do_round()
    return do_round


def theirs(data: str, tasks: list[str], **options: Any) -> Round:
    """As a user of sentence-transformers does it; for the options see `benchmarks.encoders.their_encode`."""
    import numpy as np
    import scipy.stats

    encode = their_encode(**options)

    def do_round() -> Done:
        pairs, _ = sts.read(data, tasks)
        scores = {}
        for task, each in pairs.items():
            first, second = encode(each.first), encode(each.second)
            norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
            cosines = np.sum(first * second, axis=1) / norms
            scores[task] = 100 * float(scipy.stats.spearmanr(cosines, each.gold).statistic)
        return Done(sum(len(each.gold) for each in pairs.values()), {"scores": scores})

    encode(next(iter(sts.read(data, tasks)[0].values())).first[:64])
    return do_round


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.sts", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--data", required=True, help="SentEval's data/downstream")
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated (default: all)")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--rounds", type=int, least=1, default=3)
    parser.add_argument("--batch-size", type=int, least=1, default=64, help="ours")
    parser.add_argument("--peer-batch-size", type=int, least=1, default=32, help="theirs; 32 is its own default")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    args.tasks = choose_names("--tasks", args.tasks.split(","), TASKS, "task")
    return args


def main() -> None:
    """Prints a table and the scores of all."""
    args = parse()
    from simcse_jax.huggingface.resolve import resolve

    pairs, absent = sts.read(args.data, args.tasks)
    if absent:
        print(f"{args.data}: {', '.join(absent)} not there and left out")
    print(side_by_side.heading(), flush=True)
    asked = {"data": args.data, "tasks": list(pairs)}
    contenders = []
    for dtype in args.dtype:
        options = {**asked, "dtype": dtype, "model": args.model, "batch_size": args.batch_size}
        contenders.append(Contender(f"simcse_jax, {dtype}", "benchmarks.sts:ours", options))
    for dtype in args.dtype:
        options = {**asked, "dtype": dtype, "folder": str(resolve(args.model)), "batch_size": args.peer_batch_size}
        contenders.append(Contender(f"sentence-transformers, {dtype}", "benchmarks.sts:theirs", options))
    comparison = side_by_side.compare("STS", "pairs", contenders, args.rounds)
    found = comparison.to_json()
    print(f"\n{side_by_side.table(comparison)}\n")
    rows = [["Spearman x 100", *pairs]]
    for name, figures in found["contenders"].items():
        rows.append([name, *(f"{figures['notes']['scores'][task]:.2f}" for task in pairs)])
    print("\n".join(side_by_side.aligned(rows)), flush=True)
    side_by_side.report("sts", [found], args.output)


if __name__ == "__main__":
    run_command(main)
