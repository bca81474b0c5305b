"""simcse-jax search --model M --data FILE: the nearest sentences to each query, by one model or two.

simcse-jax search build --embeddings FOLDER --output FOLDER: an index that need not fit into memory.
"""

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from simcse_jax.commands.command_line import (
    MODEL,
    Parser,
    add_batch_size,
    add_dtype,
    add_pooler,
    add_truncation,
    open_reranker,
    warnings_in_a_line,
)
from simcse_jax.errors import UserError
from simcse_jax.host import streams
from simcse_jax.host.outputs import check_inputs, output_file, printing
from simcse_jax.host.storage import is_remote, local_path

if TYPE_CHECKING:
    from simcse_jax.encoding.cross_encoder import CrossEncoder
    from simcse_jax.index.index import Index, Result
    from simcse_jax.simcse import SimCSE

    Found = tuple[str, tuple[list[Result], ...]]  # a query, and each model's results
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.index.identity import ModelIdentity

REFINE_HELP = "so many times --top-k rows are read and compared exactly (default: 20)"
RESCORE_HELP = "for vectors in int8 or binary: so many times --top-k are scored again in float32 (default: 4)"
NPROBES_HELP = "the cells that are looked into (default: 20)"


def main() -> None:
    """Reads all files first, so that a mistake in one is reported before a model is loaded."""
    if sys.argv[1:2] == ["build"]:
        build_index(sys.argv[2:])
        return
    args, output = _parse()
    from simcse_jax.data.sentences import read_sentences
    from simcse_jax.index.folder import is_index
    from simcse_jax.index.options import check_precision, check_search, check_small
    from simcse_jax.index.results_table import table

    numbers = args.top_k, args.threshold, args.recall_target, args.backend
    check = functools.partial(check_search, *numbers, storage=args.storage)  # more is known once there is an index
    check_precision(args.precision or "float32", "cosine", args.ranges is not None)
    check()
    on_disk = _is_on_disk(args)
    if args.precision or not (args.index and is_index(local_path(args.index))):  # otherwise an index says what it keeps
        check_small(args.rescore, args.storage, args.precision or "float32", args.backend, "cosine")
    sentences = read_sentences(args.data, args.column) if args.data else None
    queries = args.query or (read_sentences(args.queries, args.queries_column) if args.queries else None)

    judge = None if args.rerank is None else open_reranker(args.rerank, args.batch_size, args.dtype)
    models = _load_models(args, sentences, check, on_disk)
    titles = [f"{model.name}, pooler {model.pooler}{' with head' if model.use_head else ''}" for model in models]
    by = "" if args.compare else f", {titles[0]}"
    by += f", reranked by {judge.name}" if judge else ""
    index = models[0].index
    assert index is not None
    found: list[Found] = []
    with printing(output is not None and queries is not None) as say:
        say(f"{len(index)} sentences{by}\n")
        try:
            for batch in [queries] if queries is not None else _typed():
                answered = list(zip(batch, _search(args, models, judge, batch), strict=True))
                found += answered
                for query, results in answered:
                    say(table(query, titles, results) + "\n")
        finally:  # also keeps what was found before a wrong query or an interruption
            if output and (found or sys.exc_info()[0] is None):
                _write(output, models, judge, found)


def _parse() -> tuple[argparse.Namespace, Path | None]:
    """The options, and the file of `--output`."""
    parser = Parser(
        "search",
        description="Finds the nearest sentences to each query, by cosine or as the model says. Needs a model, and "
        "--data or an earlier --index. Prints tables; writes the embeddings to --index and the results to "
        "--output if given. `build --help` is about indexes that need not fit into memory.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    add_pooler(parser)
    parser.add_argument(
        "--data", help="what to search in: a .txt, .csv, .tsv, .jsonl or .parquet file, a folder of them, or a pattern"
    )
    parser.add_argument(
        "--column",
        only="--data",
        help="the column of --data (default: sentence, text, sent0 or anchor, or the only one)",
    )
    parser.add_argument(
        "--index", help="a folder that keeps the embeddings; it is made, or read and added to; or one of `build`"
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument(
        "--query",
        type=streams.argument,
        action="append",
        help="a query; may be given several times (default: typed, one a line)",
    )
    asked.add_argument("--queries", help="a file of queries")
    parser.add_argument(
        "--queries-column", only="--queries", help="the column of --queries, if its name is not a usual one"
    )
    add_batch_size(parser)
    add_dtype(parser)
    add_truncation(parser)
    parser.add_argument("--top-k", type=int, default=5, help="sentences for each query")
    parser.add_argument("--threshold", type=float, help="the smallest score to show (default: any)")
    parser.add_argument(
        "--approximate",
        action="store_true",
        help="faster, but may miss some; made for TPUs; with FAISS, its cells",
    )
    parser.add_argument(
        "--recall-target", type=float, help="the share that --approximate should find, without FAISS (default: 0.95)"
    )
    parser.add_argument("--backend", default="jax", help="the library that compares: jax or faiss")
    parser.add_argument(
        "--storage",
        default="float32",
        help="of the vectors on the devices; float16 and bfloat16 take half the memory and find the same, int8 and "
        "binary a quarter and 1/32 and miss few",
    )
    parser.add_argument("--rescore", type=int, help=RESCORE_HELP)
    parser.add_argument(
        "--precision", help="what an index that is made keeps: float32, int8 or binary (default: float32)"
    )
    parser.add_argument("--ranges", help="for --precision int8: a file with them (default: those of the sentences)")
    parser.add_argument("--refine", type=int, help=f"for an index of `build`: {REFINE_HELP}")
    parser.add_argument("--nprobes", type=int, help=f"for an index of `build`: {NPROBES_HELP}")
    parser.add_argument("--rerank", metavar="FOLDER", help="a cross-encoder, which sorts what was found anew")
    parser.add_argument(
        "--candidates",
        type=int,
        least=1,
        only="--rerank",
        help="sentences for each query that it reads (default: 100, or --top-k if that is more)",
    )
    parser.add_argument("--compare", metavar="MODEL", help="a second model, its results next to the first one's")
    add_pooler(parser, "--compare-pooler", "the pooler of the second model (default: its own)", only="--compare")
    parser.add_argument("--compare-index", only="--compare", help="like --index, for the second model")
    parser.add_argument("--output", help="a JSON file for the results")
    args = parser.parse_args()
    if not (args.data or args.index):
        raise UserError("nothing to search in; give --data FILE, or --index FOLDER that an earlier call made")
    if args.candidates is not None and args.candidates < args.top_k:
        raise UserError(f"--candidates {args.candidates}: must be --top-k, {args.top_k}, or more")
    if args.recall_target is None:
        args.recall_target = 0.95
    elif not args.approximate or args.backend == "faiss":
        raise UserError("--recall-target: is for --approximate without FAISS; leave it out")
    from simcse_jax.data.files import as_inputs

    inputs: dict[str, str | None] = {"--model": args.model, "--compare": args.compare, "--rerank": args.rerank}
    inputs |= as_inputs("--data", args.data) | as_inputs("--queries", args.queries)
    for option in ("compare_index",) if _is_on_disk(args) else ("index", "compare_index"):
        _check_index(option, getattr(args, option), option == "index" and not args.data, inputs)
    if args.index and args.compare_index and os.path.realpath(args.index) == os.path.realpath(args.compare_index):
        raise UserError("--compare-index: the same folder as --index; each model needs its own")
    inputs |= {"--index": args.index, "--compare-index": args.compare_index, "--ranges": args.ranges}
    return args, None if args.output is None else output_file(args.output, inputs)


def _check_index(option: str, name: str | None, needed: bool, inputs: dict[str, str | None]) -> None:
    """Refuses a folder that is no index, and one with an input that saving the index would remove."""
    if name is None:
        return
    from simcse_jax.index.folder import PATTERNS, is_index, is_writable_index, local_folder

    folder = local_folder(name)
    saved = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    check_inputs(saved, inputs, f"--{option.replace('_', '-')} {name}")
    if needed and not is_index(folder):
        raise UserError(f"--index {name}: no index there; give --data to make one")
    if not is_writable_index(folder):
        raise UserError(f"--{option.replace('_', '-')} {name}: exists and is not an index; choose another folder")


def _is_on_disk(args: argparse.Namespace) -> bool:
    """Whether the index is one of `build`, which goes without some options; others go without its own."""
    from simcse_jax.index.lance import check_options, is_lance_index

    # Sentences are encoded into an index in memory, which can be in no bucket.
    on_disk = args.index is not None and is_lance_index(args.index) and not (args.data and is_remote(args.index))
    in_memory = {"data": bool(args.data), "compare": bool(args.compare), "approximate": args.approximate}
    in_memory |= {"backend": args.backend != "jax", "storage": args.storage != "float32"}
    in_memory |= {"rescore": args.rescore is not None, "precision": args.precision is not None}
    check_options(on_disk, args.refine, args.nprobes, **in_memory)
    return on_disk


def _load_models(
    args: argparse.Namespace, sentences: list[str] | None, check: Callable[[str], None], on_disk: bool
) -> "list[SimCSE]":
    """The model, and the one to compare it with if there is one, each with an index of the same sentences."""
    from simcse_jax.simcse import SimCSE

    shared = {"batch_size": args.batch_size, "dtype": args.dtype, "truncate_dim": args.truncate_dim}
    models = [SimCSE(args.model, pooler=args.pooler, **shared)]
    check(models[0].similarity_fn_name)
    if on_disk:
        models[0].open_index(args.index)
        return models
    kept = Kept(args.precision, args.ranges)
    index = prepare(models[0], sentences, args.index, kept)
    if args.compare:
        models.append(SimCSE(args.compare, pooler=args.compare_pooler, **shared))
        check(models[1].similarity_fn_name)
        prepare(models[1], index.sentences, args.compare_index, kept)
    return models


def _search(
    args: argparse.Namespace, models: "list[SimCSE]", judge: "CrossEncoder | None", queries: list[str]
) -> "Iterable[tuple[list[Result], ...]]":
    """The results of each model, for each query."""
    options = {"approximate": args.approximate, "recall_target": args.recall_target, "backend": args.backend}
    options |= {"storage": args.storage, "rescore": args.rescore, "refine": args.refine, "nprobes": args.nprobes}
    with warnings_in_a_line():
        if judge is None:
            found = [model.search(queries, args.top_k, args.threshold, **options) for model in models]
        else:
            from simcse_jax.index.reranking import CANDIDATES, reranked

            count = args.candidates or max(CANDIDATES, args.top_k)
            every = [model.search(queries, count, **options) for model in models]
            found = [reranked(judge.score_of_each, queries, each, args.top_k, args.threshold) for each in every]
        return zip(*found, strict=True)


def _write(output: Path, models: "list[SimCSE]", judge: "CrossEncoder | None", found: "list[Found]") -> None:
    from simcse_jax.host.storage import write_atomically

    described = [{"name": model.name, "pooler": model.pooler, "head": model.use_head} for model in models]
    queries = [
        {"query": query, "results": [[result._asdict() for result in each] for each in results]}
        for query, results in found
    ]
    content = {"models": described} | ({"reranked_by": judge.name} if judge else {}) | {"queries": queries}
    write_atomically(output, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


class Kept(NamedTuple):
    """What an index keeps of an embedding; None: float32, or what the index has already."""

    precision: str | None = None
    ranges: str | None = None  # a file


UNSAID = Kept()


def prepare(model: "SimCSE", sentences: list[str] | None, folder: str | None, kept: Kept = UNSAID) -> "Index":
    """Gives the model an index of the sentences. Those that the folder's index lacks are encoded and saved there.

    Args:
      model: gets the index.
      sentences: to search in; None takes those of the folder.
      folder: of an index that exists or is to be made; None encodes the sentences and keeps nothing.
      kept: of one that is to be made.

    Raises:
      UserError: when the folder's index is another model's, or of other sentences, or another job is making it.
    """
    from simcse_jax.host.locks import held

    if folder is None:
        _add(model, sentences or [], kept)
    elif _left(model, sentences, folder) or model.index is None:
        _check_kept(model, folder, kept)
        with held(local_path(folder)):  # a second job ends here, not after it has encoded all
            _add(model, _left(model, sentences, folder), kept)  # another one may have saved some meanwhile
            model.save_index(folder)
    _check_kept(model, folder, kept)
    return _in_memory(model)


def _check_kept(model: "SimCSE", folder: str | None, kept: Kept) -> None:
    """Refuses to go on with an index that keeps something else."""
    import numpy as np

    from simcse_jax.vectors.quantization import read_ranges

    if model.index is None or kept.precision is None:
        return
    index = _in_memory(model)
    if index.precision != kept.precision:
        raise UserError(f"{folder}: an index of {index.precision}, not of {kept.precision}; choose another folder")
    if kept.ranges and not np.array_equal(np.asarray(index.ranges), read_ranges(kept.ranges, index.dimension)):
        raise UserError(f"{folder}: an index of other ranges than {kept.ranges}; choose another folder")


def _add(model: "SimCSE", sentences: list[str], kept: Kept) -> None:
    with warnings_in_a_line():
        if model.index is None and kept.precision is not None:
            model.build_index(sentences, precision=kept.precision, ranges=kept.ranges, show_progress_bar=True)
            return
        model.add_to_index(sentences, show_progress_bar=True)


def _left(model: "SimCSE", sentences: list[str] | None, folder: str) -> list[str]:
    """Loads the folder's index if there is one, and returns the sentences that it lacks."""
    from simcse_jax.index.folder import is_index

    if not is_index(local_path(folder)):
        assert sentences is not None  # without an index there must be some
        return sentences
    model.load_index(folder)
    if sentences is None:
        return []
    known = _in_memory(model).sentences
    if sentences[: len(known)] != known:
        row = next((row for row, pair in enumerate(zip(known, sentences, strict=False)) if len(set(pair)) > 1), None)
        where = f"row {row} differs" if row is not None else f"it has {len(known)}, {len(sentences)} were given"
        raise UserError(f"{folder}: an index of other sentences ({where}); remove it or choose another folder")
    return sentences[len(known) :]


def _in_memory(model: "SimCSE") -> "Index":
    from simcse_jax.index.index import Index

    assert isinstance(model.index, Index)
    return model.index


def _typed() -> Iterator[list[str]]:
    """Queries from standard input, a line each; after its end the results are written."""
    return ([line] for line in streams.read_typed_lines("query: ") if line.strip())


def build_index(arguments: Sequence[str]) -> None:
    """Looks at all files first; a model is loaded only where the embeddings do not name theirs."""
    parser = Parser(
        "search build",
        description="Makes an index of embeddings, on a disk or in a bucket, or adds them to one. Needs the files that "
        "encode writes, and LanceDB. Writes the index to --output; the next search opens it with --index.",
    )
    parser.add_argument("--embeddings", required=True, help="a folder of .parquet or .npy files, or one; gs:// too")
    parser.add_argument("--output", required=True, help="the folder of the index; one that is there is added to")
    parser.add_argument("--backend", choices=("lance",), default="lance", help="the library that keeps the index")
    parser.add_argument("--model", help=f"what made the embeddings, if the files do not say so: {MODEL}")
    add_pooler(parser, help="the pooler that made them, with --model (default: the model's own)", only="--model")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        help="what the index keeps of an embedding: 4 bytes an element; int8, a byte and a bit; or binary, a bit "
        "(default: float32, or what it keeps already)",
    )
    parser.add_argument("--ranges", help="for --precision int8: a file with them (default: those of the embeddings)")
    parser.add_argument(
        "--codes",
        choices=("product", "int8", "binary"),
        help="LanceDB's codes of vectors in float32, by which rows are found: a byte for four elements; int8, a byte "
        "an element; or binary, a bit (default: product, or what it has already)",
    )
    add_dtype(parser, only="--model")
    add_truncation(parser, only="--model")
    args = parser.parse_args(list(arguments))
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.index.lance import Wanted
    from simcse_jax.index.lance_build import build, check_folder
    from simcse_jax.vectors.quantization import read_ranges

    folder = check_folder(args.output, args.embeddings)
    files = EmbeddingFiles(args.embeddings)
    ranges = None if args.ranges is None else read_ranges(args.ranges, files.dimension)
    made_by = _maker(files, args)
    with warnings_in_a_line():
        about, added = build(folder, files, made_by, Wanted(args.precision, ranges, args.codes))
    if not added:
        print(f"{args.output}: has these {files.count:,} rows already; {about.rows:,} in all, of {made_by.name}")
        return
    numbers = f"{about.last - files.count + 1:,} to {about.last:,}"
    print(f"{args.output}: {files.count:,} rows added, numbered {numbers}; {about.rows:,} in all, of {made_by.name}")


def _maker(files: "EmbeddingFiles", args: argparse.Namespace) -> "ModelIdentity":
    """The model that made the embeddings, as they say or as the user says."""
    from simcse_jax.index.identity import check_maker

    said = files.maker
    if args.model is None:
        if said is None:
            raise UserError(f"{files.name}: does not say which model made the embeddings; give --model")
        return said
    from simcse_jax.simcse import SimCSE

    given = SimCSE(args.model, pooler=args.pooler, dtype=args.dtype, truncate_dim=args.truncate_dim).identity()
    if said is not None:
        check_maker(files.parts[0].path, said, given)
    return given
