"""simcse-jax mine --model M --pairs FILE --corpus C --output mined.jsonl: hard negatives for pairs.

Pairs are read, and negatives written, a block at a time, so memory does not grow with the pairs. The same command,
given again, resumes after a kill, and the output has the same bytes.
"""

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.commands.prepare import name_options, read_columns
from simcse_jax.commands.verbs import BatchSize, Count, Dtype, ModelName, Pooler, Seed, Texts, TruncateDim, verb
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_file

if TYPE_CHECKING:
    from simcse_jax.bulk.mining.miner import Miner
    from simcse_jax.bulk.mining.pairs import PairFiles
    from simcse_jax.bulk.resumable import PartialPairs


def _check_limit(_: Any, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise ValueError("Must be finite.")


MOST = 1 << 20  # of negatives, ranks and rows of a block
FromZero = Annotated[int, Parameter(validator=Number(gte=0, lte=MOST))]
FromOne = Annotated[int, Parameter(validator=Number(gte=1, lte=MOST))]
Limit = Annotated[float | None, Parameter(validator=_check_limit)]
LIMITS = ("max_score", "min_score", "absolute_margin", "relative_margin")


@verb
def mine(
    model: ModelName,
    pairs: str,
    corpus: str,
    output: str,
    *,
    columns: Texts = (),
    corpus_column: str | None = None,
    num_negatives: FromOne = 3,
    range_min: FromZero = 0,
    range_max: FromOne | None = None,
    max_score: Limit = None,
    min_score: Limit = None,
    absolute_margin: Limit = None,
    relative_margin: Limit = None,
    sampling: Literal["top", "random"] = "top",
    seed: Seed = 42,
    judge: str | None = None,
    at_least: FromZero = 0,
    backend: Literal["jax", "faiss"] = "jax",
    refine: Count | None = None,
    nprobes: Count | None = None,
    pooler: Pooler = None,
    batch_size: BatchSize = 64,
    dtype: Dtype = "float32",
    truncate_dim: TruncateDim = None,
    block_rows: FromOne = 4096,
) -> None:
    """Finds hard negatives for pairs of an anchor and a positive in a corpus; the same call resumes.

    Writes them to the output, which training takes as its data. Until it is complete there are .OUTPUT.partial and
    .OUTPUT.state.json, from which the same command resumes.

    Args:
      pairs: Anchors and positives: a .csv, .tsv, .jsonl or .parquet file, a folder, or a pattern.
      corpus: What to search in: sentences (a file, a folder or a pattern), a prepared corpus with its text, an index
        that search made, in memory or LanceDB's, or embeddings that encode wrote.
      output: A .jsonl or .parquet file for the pairs with their negatives.
      columns: Names of columns of the pairs, anchor=NAME positive=NAME. By default the usual ones.
      corpus_column: The column of a file of sentences, or of a prepared corpus: anchor, positive, negative.
      num_negatives: The most of a pair.
      range_min: The nearest that are passed over.
      range_max: The ranks that are looked at. By default range-min + num-negatives + 1; with limits, 10 for each
        negative.
      max_score: Leave out candidates with a higher score. By default none.
      min_score: Leave out candidates with a lower score. By default none.
      absolute_margin: Leave out those that are not lower than the positive's by so much.
      relative_margin: The same, as a share of the positive's score, such as 0.05.
      sampling: Which of the remaining ones.
      seed: Of random sampling.
      judge: A second model or a cross-encoder, whose scores the limits are for; the output has them.
      at_least: Leave out pairs with fewer negatives.
      backend: What searches an index in memory.
      refine: For an index of LanceDB: rows that are read, see `search --help`.
      nprobes: For an index of LanceDB: cells that are looked into.
      block_rows: Pairs that are mined together; a kill loses one block.

    Raises:
      UserError: for any mistake in the options, the data or the model.
    """
    from simcse_jax.bulk.mining.pairs import PairFiles, Positives
    from simcse_jax.bulk.mining.selection import Choice, default_range_max
    from simcse_jax.bulk.resumable import PAIR_KINDS, PartialPairs
    from simcse_jax.data.files import as_inputs
    from simcse_jax.host.locks import held_next_to

    limits = max_score, min_score, absolute_margin, relative_margin
    if range_max is None:
        range_max = default_range_max(num_negatives, range_min, any(limit is not None for limit in limits))
    names = read_columns(columns, ("anchor", "positive"))
    inputs = as_inputs("--pairs", pairs) | {"--corpus": corpus, "--model": model, "--judge": judge}
    path = output_file(output, inputs, kinds=PAIR_KINDS, streamed=False)
    try:
        files = PairFiles(pairs, names)
        positives = Positives(files.read())
    except UserError as error:  # about the fields of a config, which are options here
        raise UserError(name_options(str(error))) from None
    if not positives.pairs:
        raise UserError(f"--pairs {pairs}: holds no pairs")
    choice = Choice(num_negatives, range_min, range_max, *limits, sampling, seed)
    options = {"columns": names, "corpus_column": corpus_column, "at_least": at_least, "backend": backend}
    options |= {"refine": refine, "nprobes": nprobes, "batch_size": batch_size, "block_rows": block_rows}
    options |= choice._asdict()
    options["range_max"] = options.pop("range_max")  # the last one: it may follow from others, which are named then
    about = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    about["--pairs"] = files.fingerprint()
    with held_next_to(path):
        PartialPairs(path, about, whole=False)  # before models are opened and sentences encoded
        from simcse_jax.bulk.mining.corpus import open_corpus
        from simcse_jax.bulk.mining.judge import open_judge
        from simcse_jax.bulk.mining.miner import Miner, check_corpus, check_rows
        from simcse_jax.index.options import check_search
        from simcse_jax.simcse import SimCSE

        encoder = SimCSE(model, pooler=pooler, batch_size=batch_size, dtype=dtype, truncate_dim=truncate_dim)
        check_search(1, None, backend, encoder.similarity_fn_name)
        scorer, about_judge = (None, {"--judge": None}) if judge is None else open_judge(judge, batch_size, dtype)
        searched = open_corpus(
            corpus, encoder, corpus_column, {"backend": backend, "refine": refine, "nprobes": nprobes}
        )
        check_corpus(searched, files.has_rows, scorer is not None, choice, corpus)
        check_rows(searched, positives, corpus)
        about |= {"--corpus": searched.fingerprint, "--model": encoder.identity()._asdict()}
        about |= {"model's prompts": encoder.prompts, **about_judge}  # the prompts of the queries
        mined = PartialPairs(path, about)
        miner = Miner(encoder, searched, positives, choice, scorer)
        mine_blocks(miner, files, mined, positives.rows, block_rows, num_negatives, at_least)
        if files.fingerprint() != about["--pairs"]:
            raise UserError(f"{pairs}: changed while it was read; start again")
        if not mined.counted["negatives"]:
            mined.remove()
            raise UserError(f"--corpus {corpus}: no pair has a hard negative there that the options allow; relax them")
        mined.finish(searched.has_text, scorer is not None)
        report(path, mined.counted, searched.has_text)


def mine_blocks(
    miner: "Miner",
    pairs: "PairFiles",
    mined: "PartialPairs",
    rows: int,
    block_rows: int,
    num_negatives: int,
    at_least: int,
) -> None:
    """Mines the blocks that are not done yet, of so many rows in all."""
    from simcse_jax.host.progress import Progress

    if mined.done:
        print(f"{mined.output}: resuming after row {mined.done:,} of {rows:,}", flush=True)
    rest = pairs.read(mined.done)
    with Progress(rows, done=mined.done) as bar:
        while block := list(itertools.islice(rest, block_rows)):
            present = [pair for pair in block if pair is not None]
            records, left_out = miner.mine(present) if present else ([], Counter())
            kept = [record for record in records if len(record["negative_rows"]) >= at_least]
            counted = {f"left out by {name}": count for name, count in left_out.items()}
            counted |= {"blank": len(block) - len(present), "pairs": len(kept), "too few": len(records) - len(kept)}
            counted["negatives"] = sum(len(record["negative_rows"]) for record in kept)
            counted["short"] = sum(len(record["negative_rows"]) < num_negatives for record in kept)
            mined.append(kept, len(block), counted)
            bar.advance(len(block))


def report(path: Path, counted: Counter[str], has_text: bool) -> None:
    """Prints what was found."""
    print(f"{path}: {counted['pairs']:,} pairs with {counted['negatives']:,} hard negatives")
    notes = {
        "pairs with fewer than asked for": counted["short"],
        "pairs left out by --at-least": counted["too few"],
        "blank rows left out": counted["blank"],
        **{f"candidates left out by --{name.replace('_', '-')}": counted[f"left out by {name}"] for name in LIMITS},
    }
    for note, count in notes.items():
        if count:
            print(f"{count:10,}  {note}")
    if not has_text:
        print(f"{path}: rows alone, since the corpus has no text")
