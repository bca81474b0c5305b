"""simcse-jax search --model M --data FILE: the nearest sentences to each query, by one model or two."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.commands.build_index import build_index
from simcse_jax.commands.command_line import open_reranker, shorten_warnings
from simcse_jax.commands.verbs import (
    BatchSize,
    Count,
    Dtype,
    ModelName,
    Pooler,
    Queries,
    TruncateDim,
    verb,
)
from simcse_jax.errors import UserError
from simcse_jax.host import streams
from simcse_jax.host.outputs import check_inputs, output_file, printing
from simcse_jax.host.storage import is_remote, local_path, write_atomically

if TYPE_CHECKING:
    from simcse_jax.encoding.cross_encoder import CrossEncoder
    from simcse_jax.index.index import Index, Result
    from simcse_jax.simcse import SimCSE

    Answer = tuple[str, tuple[list[Result], ...]]  # a query, and each model's results

SUBCOMMANDS = {"build": build_index}


@verb
def search(
    model: ModelName,
    data: str | None = None,
    *,
    column: str | None = None,
    index: str | None = None,
    query: Queries = (),
    queries: str | None = None,
    queries_column: str | None = None,
    pooler: Pooler = None,
    batch_size: BatchSize = 64,
    dtype: Dtype = "float32",
    truncate_dim: TruncateDim = None,
    top_k: Count = 5,
    threshold: float | None = None,
    approximate: bool = False,
    recall_target: Annotated[float, Parameter(validator=Number(gt=0, lte=1))] = 0.95,
    backend: Literal["jax", "faiss"] = "jax",
    storage: Literal["float32", "float16", "bfloat16", "int8", "binary"] = "float32",
    rescore: Count | None = None,
    precision: Literal["float32", "int8", "binary"] | None = None,
    ranges: str | None = None,
    refine: Count | None = None,
    nprobes: Count | None = None,
    rerank: str | None = None,
    candidates: Count | None = None,
    compare: str | None = None,
    compare_pooler: str | None = None,
    compare_index: str | None = None,
    output: str | None = None,
) -> dict[str, Any]:
    """Finds the nearest sentences to each query, by cosine or as the model says.

    Needs a model, and data or an earlier index. Prints tables; writes the embeddings to the index and the results to
    the output, if they are given.

    Args:
      data: What to search in: a .txt, .csv, .tsv, .jsonl or .parquet file, a folder of them, or a pattern.
      column: Of the data. By default sentence, text, sent0 or anchor, or the only one.
      index: A folder that keeps the embeddings; it is made, or read and added to; or one of `search build`.
      query: A query; may be given several times. By default they are typed, one a line.
      queries: A file of queries.
      queries_column: Of the queries, if its name is not a usual one.
      top_k: Sentences for each query.
      threshold: The smallest score to show. By default any.
      approximate: Faster, but may miss some; made for TPUs; with FAISS, its cells.
      recall_target: The share that an approximate search should find, without FAISS.
      backend: The library that compares.
      storage: Of the vectors on the devices; float16 and bfloat16 take half the memory and find the same, int8 and
        binary a quarter and 1/32 and miss few.
      rescore: For vectors in int8 or binary: so many times top-k are scored again in float32. By default 4.
      precision: What an index that is made keeps. By default float32.
      ranges: For an index in int8: a file with them. By default those of the sentences.
      refine: For an index of `search build`: so many times top-k rows are read and compared exactly. By default 20.
      nprobes: For an index of `search build`: the cells that are looked into. By default 20.
      rerank: A folder with a cross-encoder, which sorts what was found anew.
      candidates: Sentences for each query that the cross-encoder reads. By default 100, or top-k if that is more.
      compare: A second model, its results next to the first one's.
      compare_pooler: Of the second model. By default its own.
      compare_index: Like index, for the second model.
      output: A JSON file for the results.

    Returns:
      The models and the results of each query, as the output has them.

    Raises:
      UserError: for any mistake in the options, the data, the index or a model.
    """
    from simcse_jax.data.files import as_inputs
    from simcse_jax.data.sentences import read_sentences
    from simcse_jax.index.lance import is_lance_index
    from simcse_jax.index.options import check_precision, check_search
    from simcse_jax.index.results_table import table
    from simcse_jax.simcse import SimCSE

    # All files are read first, so that a mistake in one is reported before a model is loaded.
    if not (data or index):
        raise UserError("nothing to search in; give --data FILE, or --index FOLDER that an earlier call made")
    if query and queries:
        raise UserError("--query: does not go with --queries; leave one of them out")
    inputs: dict[str, str | None] = {"--model": model, "--compare": compare, "--rerank": rerank}
    inputs |= as_inputs("--data", data) | as_inputs("--queries", queries)
    # Sentences are encoded into an index in memory, which can be in no bucket.
    on_disk = index is not None and is_lance_index(index) and not (data and is_remote(index))
    if on_disk and (data or compare):
        raise UserError(f"{'--data' if data else '--compare'}: {index} is an index on disk, which has its sentences")
    if not on_disk:
        _check_index("--index", index, not data, inputs)
    _check_index("--compare-index", compare_index, False, inputs)
    if index and compare_index and os.path.realpath(index) == os.path.realpath(compare_index):
        raise UserError("--compare-index: the same folder as --index; each model needs its own")
    inputs |= {"--index": index, "--compare-index": compare_index, "--ranges": ranges}
    path = None if output is None else output_file(output, inputs)
    check_search(top_k, threshold, backend, storage=storage)  # more is known once there is an index
    check_precision(precision or "float32", "cosine", ranges is not None)
    sentences = read_sentences(data, column) if data else None
    asked = list(query) or (read_sentences(queries, queries_column) if queries else None)

    judge = None if rerank is None else open_reranker(rerank, batch_size, dtype)
    shared: dict[str, Any] = {"batch_size": batch_size, "dtype": dtype, "truncate_dim": truncate_dim}
    models = [SimCSE(model, pooler=pooler, **shared)]
    check_search(top_k, threshold, backend, models[0].similarity_fn_name, storage)
    if on_disk:
        models[0].open_index(str(index))
        options: dict[str, Any] = {"refine": refine, "nprobes": nprobes}
    else:
        kept = IndexOptions(precision, ranges)
        sentences = prepare(models[0], sentences, index, kept).sentences
        options = {"approximate": approximate, "recall_target": recall_target, "backend": backend, "storage": storage}
        options["rescore"] = rescore
    if compare:
        models.append(SimCSE(compare, pooler=compare_pooler, **shared))
        prepare(models[1], sentences, compare_index, kept)
    titles = [
        f"{encoder.name}, pooler {encoder.pooler}{' with head' if encoder.use_head else ''}" for encoder in models
    ]
    by = "" if compare else f", {titles[0]}"
    by += f", reranked by {judge.name}" if judge else ""
    assert models[0].index is not None
    answers: list[Answer] = []
    with printing(path is not None and asked is not None) as say:
        say(f"{len(models[0].index)} sentences{by}\n")
        try:
            for batch in [asked] if asked is not None else _read_typed():
                for answer in _answers(models, batch, options, judge, candidates, top_k, threshold):
                    answers.append(answer)
                    say(table(answer[0], titles, answer[1]) + "\n")
        finally:  # also keeps what was found before a wrong query or an interruption
            content = _content(models, judge, answers)
            if path and (answers or sys.exc_info()[0] is None):
                write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return content


def _answers(
    models: "Sequence[SimCSE]",
    queries: list[str],
    options: Mapping[str, Any],
    judge: "CrossEncoder | None",
    num_candidates: int | None,
    top_k: int,
    threshold: float | None,
) -> "list[Answer]":
    """Each query with the results of each model."""
    with shorten_warnings():
        if judge is None:
            results = [model.search(queries, top_k, threshold, **options) for model in models]
        else:
            from simcse_jax.index.reranking import CANDIDATES, reranked

            count = max(num_candidates or CANDIDATES, top_k)
            results = [
                reranked(judge.score_of_each, queries, model.search(queries, count, **options), top_k, threshold)
                for model in models
            ]
        return list(zip(queries, zip(*results, strict=True), strict=True))


def _content(models: "Sequence[SimCSE]", judge: "CrossEncoder | None", answers: "Sequence[Answer]") -> dict[str, Any]:
    described = [{"name": model.name, "pooler": model.pooler, "head": model.use_head} for model in models]
    queries = [
        {"query": query, "results": [[result._asdict() for result in of_model] for of_model in results]}
        for query, results in answers
    ]
    return {"models": described} | ({"reranked_by": judge.name} if judge else {}) | {"queries": queries}


def _check_index(option: str, name: str | None, needed: bool, inputs: dict[str, str | None]) -> None:
    """Refuses a folder that is no index, and one with an input that saving the index would remove."""
    if name is None:
        return
    from simcse_jax.index.folder import PATTERNS, is_index, is_writable_index, local_folder

    folder = local_folder(name)
    saved = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    check_inputs(saved, inputs, f"{option} {name}")
    if needed and not is_index(folder):
        raise UserError(f"--index {name}: no index there; give --data to make one")
    if not is_writable_index(folder):
        raise UserError(f"{option} {name}: exists and is not an index; choose another folder")


class IndexOptions(NamedTuple):
    """What an index keeps of an embedding; None: float32, or what the index has already."""

    precision: str | None = None
    ranges: str | None = None  # a file


DEFAULT_OPTIONS = IndexOptions()


def prepare(
    model: "SimCSE", sentences: list[str] | None, folder: str | None, kept: IndexOptions = DEFAULT_OPTIONS
) -> "Index":
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
    elif _new_sentences(model, sentences, folder) or model.index is None:
        _check_options(model, folder, kept)
        with held(local_path(folder)):  # a second job ends here, not after it has encoded all
            _add(model, _new_sentences(model, sentences, folder), kept)  # another one may have saved some meanwhile
            model.save_index(folder)
    _check_options(model, folder, kept)
    return _memory_index(model)


def _check_options(model: "SimCSE", folder: str | None, kept: IndexOptions) -> None:
    """Refuses options that an existing index does not have."""
    import numpy as np

    from simcse_jax.vectors.quantization import read_ranges

    if model.index is None or kept.precision is None:
        return
    index = _memory_index(model)
    if index.precision != kept.precision:
        raise UserError(f"{folder}: an index of {index.precision}, not of {kept.precision}; choose another folder")
    if kept.ranges and not np.array_equal(np.asarray(index.ranges), read_ranges(kept.ranges, index.dimension)):
        raise UserError(f"{folder}: an index of other ranges than {kept.ranges}; choose another folder")


def _add(model: "SimCSE", sentences: list[str], kept: IndexOptions) -> None:
    with shorten_warnings():
        if model.index is None and kept.precision is not None:
            model.build_index(sentences, precision=kept.precision, ranges=kept.ranges, show_progress_bar=True)
            return
        model.add_to_index(sentences, show_progress_bar=True)


def _new_sentences(model: "SimCSE", sentences: list[str] | None, folder: str) -> list[str]:
    """Loads the folder's index if there is one, and returns the sentences that it lacks."""
    from simcse_jax.index.folder import is_index

    if not is_index(local_path(folder)):
        assert sentences is not None  # without an index there must be some
        return sentences
    model.load_index(folder)
    if sentences is None:
        return []
    stored = _memory_index(model).sentences
    if sentences[: len(stored)] != stored:
        row = next((row for row, pair in enumerate(zip(stored, sentences, strict=False)) if len(set(pair)) > 1), None)
        where = f"row {row} differs" if row is not None else f"it has {len(stored)}, {len(sentences)} were given"
        raise UserError(f"{folder}: an index of other sentences ({where}); remove it or choose another folder")
    return sentences[len(stored) :]


def _memory_index(model: "SimCSE") -> "Index":
    from simcse_jax.index.index import Index

    assert isinstance(model.index, Index)
    return model.index


def _read_typed() -> Iterator[list[str]]:
    """Queries from standard input, a line each; after its end the results are written."""
    return ([line] for line in streams.read_typed_lines("query: ") if line.strip())
