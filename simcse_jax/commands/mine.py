"""simcse-jax mine --model M --pairs FILE --corpus C --output mined.jsonl: hard negatives for pairs.

Pairs are read, and negatives written, a block at a time, so memory does not grow with the pairs. The same command,
given again, resumes after a kill, and the output has the same bytes.
"""

import argparse
import itertools
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import (
    MODEL,
    Parser,
    add_batch_size,
    add_dtype,
    add_pooler,
    add_truncation,
    warnings_in_a_line,
)
from simcse_jax.commands.prepare import with_options
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import RESUMED, output_file

if TYPE_CHECKING:
    from simcse_jax.bulk.mining.pairs import PairFiles
    from simcse_jax.bulk.mining.selection import Choice
    from simcse_jax.bulk.resumable import PartialPairs

OPTIONS = ("columns", "corpus_column", "at_least", "backend", "refine", "nprobes", "batch_size", "block_rows")
BLOCK_ROWS = 4096
MOST = 1 << 20  # of negatives, ranks and rows of a block
LIMITS = ("max_score", "min_score", "absolute_margin", "relative_margin")


def main() -> None:
    """The command."""
    run(parse(sys.argv[1:]))


def run(args: argparse.Namespace) -> None:
    """Mines as the options say."""
    from simcse_jax.bulk.mining.pairs import PairFiles, Positives
    from simcse_jax.bulk.resumable import PAIR_KINDS, PartialPairs
    from simcse_jax.data.files import as_inputs
    from simcse_jax.host.locks import held_next_to

    inputs = as_inputs("--pairs", args.pairs) | {"--corpus": args.corpus}
    inputs |= {"--model": args.model, "--judge": args.judge}
    path = output_file(args.output, inputs, kinds=PAIR_KINDS, temporary=RESUMED, streamed=False)
    try:
        with warnings_in_a_line():
            pairs = PairFiles(args.pairs, args.columns)
        positives = Positives(pairs.read())
    except UserError as error:  # about the fields of a config, which are options here
        raise UserError(with_options(str(error))) from None
    if not positives.pairs:
        raise UserError(f"--pairs {args.pairs}: holds no pairs")
    with held_next_to(path), warnings_in_a_line():
        mine(args, path, pairs, positives, PartialPairs)
    positives.close()


def mine(
    args: argparse.Namespace, path: Path, pairs: "PairFiles", positives: Any, output_of: "type[PartialPairs]"
) -> None:
    """Mines the blocks that are not done yet, and writes the output."""
    from simcse_jax.bulk.mining.corpus import open_corpus
    from simcse_jax.bulk.mining.judge import open_judge
    from simcse_jax.bulk.mining.miner import Miner, check_corpus, check_rows
    from simcse_jax.host.progress import Progress
    from simcse_jax.index.options import check_search
    from simcse_jax.simcse import SimCSE

    choice = choice_of(args)
    about = options_of(args, choice) | {"--pairs": pairs.fingerprint()}
    output_of(path, about, whole=False)  # before models are opened and sentences encoded
    model = SimCSE(
        args.model, pooler=args.pooler, batch_size=args.batch_size, dtype=args.dtype, truncate_dim=args.truncate_dim
    )
    check_search(1, None, backend=args.backend, similarity=model.similarity_fn_name)
    judge, judge_s = None, {"--judge": None}
    if args.judge is not None:
        judge, judge_s = open_judge(args.judge, args.batch_size, args.dtype)
    options: Any = {name: getattr(args, name) for name in ("refine", "nprobes") if getattr(args, name) is not None}
    options |= {"backend": args.backend} if args.backend != "jax" else {}
    corpus = open_corpus(args.corpus, model, args.corpus_column, options)
    check_corpus(corpus, pairs.has_rows, judge is not None, choice, args.corpus)
    check_rows(corpus, positives, args.corpus)
    about |= {"--corpus": corpus.fingerprint, "--model": model.identity()._asdict()}
    about |= {"model's prompts": model.prompts}  # of the queries
    output = output_of(path, about | judge_s)
    if output.done:
        print(f"{path}: resuming after row {output.done:,} of {positives.rows:,}", flush=True)
    miner, left = Miner(model, corpus, positives, choice, judge), pairs.read(output.done)
    with Progress(positives.rows, done=output.done) as bar:
        while block := list(itertools.islice(left, args.block_rows)):
            found = [pair for pair in block if pair is not None]
            records, left_out = miner.mine(found) if found else ([], Counter())
            kept = [record for record in records if len(record["negative_rows"]) >= args.at_least]
            counted = {f"left out by {name}": count for name, count in left_out.items()}
            counted |= {"blank": len(block) - len(found), "pairs": len(kept), "too few": len(records) - len(kept)}
            counted["negatives"] = sum(len(record["negative_rows"]) for record in kept)
            counted["short"] = sum(len(record["negative_rows"]) < args.num_negatives for record in kept)
            output.append(kept, len(block), counted)
            bar.advance(len(block))
    if pairs.fingerprint() != about["--pairs"]:
        raise UserError(f"{pairs.name}: changed while it was read; start again")
    if not output.counted["negatives"]:
        output.remove()
        raise UserError(f"--corpus {args.corpus}: no pair has a hard negative there that the options allow; relax them")
    output.finish(corpus.has_text, judge is not None)
    report(path, output.counted, corpus.has_text)


def choice_of(args: argparse.Namespace) -> "Choice":
    """How negatives are chosen."""
    from simcse_jax.bulk.mining.selection import Choice

    limits = {name: getattr(args, name) for name in LIMITS}
    numbers = args.num_negatives, args.range_min, args.range_max
    return Choice(*numbers, **limits, sampling=args.sampling, seed=args.seed)


def options_of(args: argparse.Namespace, choice: "Choice") -> dict[str, Any]:
    """The options that the output depends on.

    The ranks come last: where they follow from other options, the first one that differs is named.
    """
    chosen = sorted(choice._asdict().items(), key=lambda item: item[0] == "range_max")
    return {
        f"--{name.replace('_', '-')}": value for name, value in [*((n, getattr(args, n)) for n in OPTIONS), *chosen]
    }


def report(path: Path, counted: Counter[str], has_text: bool) -> None:
    """Prints what was found."""
    print(f"{path}: {counted['pairs']:,} pairs with {counted['negatives']:,} hard negatives")
    notes = {
        "pairs with fewer than asked for": counted["short"],
        "pairs left out by --at-least": counted["too few"],
        "blank rows left out": counted["blank"],
        **{f"candidates left out by --{_spelled(name)}": counted[f"left out by {name}"] for name in LIMITS},
    }
    for note, count in notes.items():
        if count:
            print(f"{count:10,}  {note}")
    if not has_text:
        print(f"{path}: rows alone, since the corpus has no text")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options, after all checks that need no file."""
    parser = Parser(
        "mine",
        description="Finds hard negatives for pairs of an anchor and a positive in a corpus. Writes them to --output, "
        "which config.data.train takes; until it is complete, .OUTPUT.partial and .OUTPUT.state.json, from which the "
        "same command resumes.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument(
        "--pairs",
        required=True,
        help="anchors and positives: a .csv, .tsv, .jsonl or .parquet file, a folder, or a pattern",
    )
    parser.add_argument(
        "--corpus",
        required=True,
        help="what to search in: sentences (a file, a folder or a pattern), a prepared corpus with its text, "
        "an index that search made, in memory or LanceDB's, or embeddings that encode wrote",
    )
    parser.add_argument("--output", required=True, help="a .jsonl or .parquet file for the pairs with their negatives")
    parser.add_argument(
        "--columns", nargs="+", default=[], metavar="ROLE=NAME", help="names of columns of --pairs: anchor, positive"
    )
    parser.add_argument(
        "--corpus-column", help="the column of a file of sentences, or of a prepared corpus: anchor, positive, negative"
    )
    parser.add_argument("--num-negatives", type=int, default=3, least=1, most=MOST, help="the most of a pair")
    parser.add_argument("--range-min", type=int, default=0, least=0, most=MOST, help="the nearest that are passed over")
    parser.add_argument(
        "--range-max",
        type=int,
        least=1,
        most=MOST,
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
    parser.add_argument(
        "--seed", type=int, least=0, most=2**32 - 1, only="--sampling random", help="of the drawing (default: 42)"
    )
    parser.add_argument(
        "--judge",
        metavar="MODEL",
        help="a second model or a cross-encoder, whose scores the limits are for; the output has them",
    )
    parser.add_argument(
        "--at-least", type=int, default=0, least=0, most=MOST, help="leave out pairs with fewer negatives"
    )
    parser.add_argument("--backend", choices=("jax", "faiss"), default="jax", help="what searches an index in memory")
    parser.add_argument("--refine", type=int, help="for an index of LanceDB: rows that are read, see search --help")
    parser.add_argument("--nprobes", type=int, help="for an index of LanceDB: cells that are looked into")
    add_pooler(parser)
    add_batch_size(parser)
    add_dtype(parser)
    add_truncation(parser)
    blocks = "pairs that are mined together; a kill loses one block"
    parser.add_argument("--block-rows", type=int, default=BLOCK_ROWS, least=1, most=MOST, help=blocks)
    args = parser.parse_args(argv)
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
    for name in LIMITS:
        value = getattr(args, name)
        if value is not None and not math.isfinite(value):
            raise UserError(f"--{_spelled(name)} {value}: must be a number")
    limited = any(getattr(args, name) is not None for name in LIMITS)
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
    args.seed = 42 if args.seed is None else args.seed


def _spelled(name: str) -> str:
    return name.replace("_", "-")
