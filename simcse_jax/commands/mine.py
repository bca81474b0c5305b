"""simcse-jax mine --model M --pairs FILE --corpus C --output mined.jsonl: hard negatives for pairs.

Pairs are read, and negatives written, a block at a time, so memory does not grow with the pairs. The same command,
given again, resumes after a kill, and the output has the same bytes.
"""

import argparse
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import run_command, warnings_in_a_line
from simcse_jax.commands.mine_arguments import LIMITS, parse
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import RESUMED, output_file

if TYPE_CHECKING:
    from simcse_jax.bulk.mining.pairs import PairFile
    from simcse_jax.bulk.mining.selection import Choice
    from simcse_jax.bulk.resumable import PartialPairs

OPTIONS = ("columns", "corpus_column", "at_least", "backend", "refine", "nprobes", "batch_size", "block_rows")


def main() -> None:
    """The command."""
    args = parse()
    from simcse_jax.bulk.mining.pairs import PairFile, Positives
    from simcse_jax.bulk.resumable import PAIR_KINDS, PartialPairs
    from simcse_jax.host.locks.lock import held_next_to

    inputs = {"--pairs": args.pairs, "--model": args.model, "--corpus": args.corpus, "--judge": args.judge}
    path = output_file(args.output, inputs, kinds=PAIR_KINDS, temporary=RESUMED, streamed=False)
    try:
        with warnings_in_a_line():
            pairs = PairFile(args.pairs, args.columns)
        positives = Positives(pairs.read())
    except UserError as error:  # about the fields of a config, which are options here
        raise UserError(re.sub(r"data\.columns\.(\w+)", r"--columns \1=NAME", str(error))) from None
    if not positives.pairs:
        raise UserError(f"--pairs {args.pairs}: holds no pairs")
    with held_next_to(path), warnings_in_a_line():
        mine(args, path, pairs, positives, PartialPairs)
    positives.close()


def mine(
    args: argparse.Namespace, path: Path, pairs: "PairFile", positives: Any, output_of: "type[PartialPairs]"
) -> None:
    """Mines the blocks that are not done yet, and writes the output."""
    from simcse_jax.bulk.mining.corpus import open_corpus
    from simcse_jax.bulk.mining.miner import Miner, check_corpus, check_rows
    from simcse_jax.data.corpus.shared_folder import hash_file
    from simcse_jax.host.progress import Progress
    from simcse_jax.index.options import check_search
    from simcse_jax.simcse import SimCSE

    choice = choice_of(args)
    about = options_of(args, choice) | {"--pairs": hash_file(pairs.path)} | pairs.reading
    output_of(path, about, whole=False)  # before models are opened and sentences encoded
    model = SimCSE(
        args.model, pooler=args.pooler, batch_size=args.batch_size, dtype=args.dtype, truncate_dim=args.truncate_dim
    )
    check_search(1, None, backend=args.backend, similarity=model.similarity_fn_name)
    judge = SimCSE(args.judge, batch_size=args.batch_size, dtype=args.dtype) if args.judge is not None else None
    options: Any = {name: getattr(args, name) for name in ("refine", "nprobes") if getattr(args, name) is not None}
    options |= {"backend": args.backend} if args.backend != "jax" else {}
    corpus = open_corpus(args.corpus, model, args.corpus_column, options)
    check_corpus(corpus, pairs.has_rows, judge is not None, choice, args.corpus)
    check_rows(corpus, positives, args.corpus)
    about |= {"--corpus": corpus.fingerprint, "--model": model.identity()._asdict()}
    about |= {"model's prompts": model.prompts}  # of the queries
    about |= {"judge's prompts": judge.prompts} if judge else {}
    output = output_of(path, about | {"--judge": judge.identity()._asdict() if judge else None})
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
    if hash_file(pairs.path) != about["--pairs"]:
        raise UserError(f"{pairs.path}: changed while it was read; start again")
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
    for name in LIMITS:
        if count := counted[f"left out by {name}"]:
            print(f"--{name.replace('_', '-')}: left out {count:,} candidates")
    notes = [f"{counted['short']:,} with fewer than asked for"] if counted["short"] else []
    notes += [f"{counted['too few']:,} left out by --at-least"] if counted["too few"] else []
    notes += [f"{counted['blank']:,} blank rows left out"] if counted["blank"] else []
    notes += [] if has_text else ["rows alone, since the corpus has no text"]
    print("; ".join([f"{path}: {counted['pairs']:,} pairs with {counted['negatives']:,} hard negatives", *notes]))


if __name__ == "__main__":
    run_command(main)
