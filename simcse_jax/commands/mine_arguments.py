"""The options of `simcse-jax mine`."""

import argparse
import math
import sys

from simcse_jax.commands.command_line import MODEL, Parser, add_dtype, add_truncation
from simcse_jax.errors import UserError
from simcse_jax.models.config import POOLERS

BLOCK_ROWS = 4096
LIMITS = ("max_score", "min_score", "absolute_margin", "relative_margin")


def parse() -> argparse.Namespace:
    """The options, after all checks that need no file."""
    parser = Parser(
        prog="simcse_jax.commands.mine",
        description="Finds hard negatives for pairs of an anchor and a positive in a corpus. Writes them to --output, "
        "which config.data.train takes; until it is complete, .OUTPUT.partial and .OUTPUT.state.json, from which the "
        "same command resumes.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument(
        "--pairs", required=True, help="a .csv, .tsv, .jsonl or .parquet file with anchors and positives"
    )
    parser.add_argument(
        "--corpus",
        required=True,
        help="what to search in: a file of sentences, a prepared corpus with its text, an index that search made, in "
        "memory or LanceDB's, or embeddings that encode wrote",
    )
    parser.add_argument("--output", required=True, help="a .jsonl or .parquet file for the pairs with their negatives")
    parser.add_argument(
        "--columns", nargs="+", default=[], metavar="ROLE=NAME", help="names of columns of --pairs: anchor, positive"
    )
    parser.add_argument(
        "--corpus-column", help="the column of a file of sentences, or of a prepared corpus: anchor, positive, negative"
    )
    parser.add_argument("--num-negatives", type=int, default=3, help="the most of a pair")
    parser.add_argument("--range-min", type=int, default=0, help="so many of the nearest that remain are passed over")
    parser.add_argument(
        "--range-max",
        type=int,
        help="the ranks that are looked at (default: range-min + num-negatives + 1; with limits, 10 for each negative)",
    )
    parser.add_argument("--max-score", type=float, help="leave out candidates with a higher score (default: none)")
    parser.add_argument("--min-score", type=float, help="leave out candidates with a lower score (default: none)")
    parser.add_argument(
        "--absolute-margin", type=float, help="leave out those that are not lower than the positive's by so much"
    )
    parser.add_argument(
        "--relative-margin", type=float, help="the same, as a share of the positive's score, such as 0.05"
    )
    parser.add_argument("--sampling", choices=("top", "random"), default="top", help="which of the remaining ones")
    parser.add_argument("--seed", type=int, help="of --sampling random (default: 42)")
    parser.add_argument("--judge", metavar="MODEL", help="a second model, whose scores the limits are for")
    parser.add_argument("--at-least", type=int, default=0, help="leave out pairs with fewer negatives")
    parser.add_argument("--backend", choices=("jax", "faiss"), default="jax", help="what searches an index in memory")
    parser.add_argument("--refine", type=int, help="for an index of LanceDB: rows that are read, see search --help")
    parser.add_argument("--nprobes", type=int, help="for an index of LanceDB: cells that are looked into")
    parser.add_argument("--pooler", choices=POOLERS, help="from tokens to an embedding (default: the model's own)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    add_dtype(parser)
    add_truncation(parser)
    parser.add_argument(
        "--block-rows", type=int, default=BLOCK_ROWS, help="pairs that are mined together; a kill loses one block"
    )
    args = parser.parse_args(sys.argv[1:])
    args.columns = columns_of(args.columns)
    check_numbers(args)
    return args


def columns_of(given: list[str]) -> dict[str, str]:
    """ROLE=NAME, … as a table.

    Raises:
      UserError: for another role than anchor and positive, one alone, or a column that is both.
    """
    found: dict[str, str] = {}
    for each in given:
        role, equals, name = each.partition("=")
        if role not in ("anchor", "positive") or not equals or not name or role in found:
            raise UserError(f"--columns {each}: must be anchor=NAME or positive=NAME, each once")
        found[role] = name
    if len(found) == 1:
        raise UserError("--columns: give both, anchor=NAME and positive=NAME")
    if found and found["anchor"] == found["positive"]:
        raise UserError(f"--columns: anchor and positive are both {found['anchor']}; name two columns")
    return found


def check_numbers(args: argparse.Namespace) -> None:
    """Refuses numbers that are out of their range or have no effect, and sets those that follow from others.

    Raises:
      UserError: naming the option.
    """
    least = {"num_negatives": 1, "range_min": 0, "range_max": 1, "at_least": 0, "block_rows": 1, "batch_size": 1}
    for name, smallest in least.items():
        value = getattr(args, name)
        if value is not None and not smallest <= value <= 1 << 20:
            raise UserError(f"--{_spelled(name)} {str(value)[:40]}: must be from {smallest} to {1 << 20:,}")
    for name in LIMITS:
        value = getattr(args, name)
        if value is not None and not math.isfinite(value):
            raise UserError(f"--{_spelled(name)} {value}: must be a number")
    limited = any(getattr(args, name) is not None for name in LIMITS)
    if args.judge is not None and not limited:
        raise UserError(f"--judge: its scores are compared with limits; give --{' or --'.join(map(_spelled, LIMITS))}")
    if args.range_max is None:
        from simcse_jax.bulk.mining.selection import default_range_max

        args.range_max = default_range_max(args.num_negatives, args.range_min, limited)
    if args.num_negatives > args.range_max - args.range_min:
        raise UserError(
            f"--num-negatives {args.num_negatives}: only {max(args.range_max - args.range_min, 0)} ranks are left "
            f"between --range-min {args.range_min} and --range-max {args.range_max}"
        )
    if args.at_least > args.num_negatives:
        raise UserError(f"--at-least {args.at_least}: is more than --num-negatives {args.num_negatives}")
    if args.seed is not None and args.sampling != "random":
        raise UserError("--seed: has no effect without --sampling random; leave it out")
    args.seed = 42 if args.seed is None else args.seed
    if not 0 <= args.seed < 2**32:
        raise UserError(f"--seed {str(args.seed)[:40]}: must be from 0 to 2³² - 1")


def _spelled(name: str) -> str:
    return name.replace("_", "-")
