"""Index build and search in random unit vectors, in turn: ours, exact and approximate, NumPy, FAISS flat and in cells.

    python -m benchmarks.search [--rows 100000 1000000] [--dimension 384] [--rounds 5] [--output FILE]

Three tables for each size: building the index from embeddings in memory, until its first answer; the five nearest rows
of one query; those of 64 queries together. Work is counted in rows when building and in queries when searching. Recall
is the share of the true five that a search finds; random vectors have no clusters, which is a hard case for FAISS's
cells. All contenders map the file of the vectors into memory, where it counts for each; an index copies them. Needs
faiss-cpu.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.contender import Done, Round
from benchmarks.options import Parser
from benchmarks.side_by_side import Contender, Need
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

TOP_K = 5
KINDS = {
    "simcse_jax, exact": "exact",
    "simcse_jax, approximate": "approximate",
    "NumPy": "numpy",
    "FAISS, flat": "flat",
    "FAISS, cells": "cells",
}
Search = Callable[[np.ndarray], np.ndarray]  # (Q, D) to (Q, TOP_K) rows


def unit_rows(count: int, dimension: int, seed: int) -> np.ndarray:
    """(count, dimension) float32, of unit length."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def brute_force(queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows of the largest products, NumPy's way: (Q, TOP_K)."""
    scores = queries @ rows.T
    found = np.argpartition(scores, -TOP_K, axis=1)[:, -TOP_K:]
    return np.take_along_axis(found, np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1), axis=1)


def build(kind: str, rows: np.ndarray) -> Search:
    """An index of one of `KINDS`, and the search in it."""
    if kind == "numpy":
        return lambda queries: brute_force(queries, rows)
    if kind in ("exact", "approximate"):
        from simcse_jax.index.index import Index

        index = Index(rows.shape[1])
        index.add([""] * len(rows), rows)

        def search(queries: np.ndarray) -> np.ndarray:
            results = index.search(queries, TOP_K, -1.0, approximate=kind == "approximate")
            return np.array([[one.row for one in each] for each in results])

        return search
    import faiss

    flat = faiss.IndexFlatIP(rows.shape[1])
    if kind == "flat":
        flat.add(rows)
        return lambda queries: flat.search(queries, TOP_K)[1]
    # The reference's: 100 cells, 10 of which are searched, trained on as many rows as FAISS asks for.
    cells = faiss.IndexIVFFlat(flat, rows.shape[1], min(100, max(1, len(rows) // 39)), faiss.METRIC_INNER_PRODUCT)
    cells.train(rows[: 256 * 100])
    cells.add(rows)
    cells.nprobe = 10
    return lambda queries, flat=flat: cells.search(queries, TOP_K)[1]  # FAISS refers to `flat` and does not keep it


def building(kind: str, rows: str, **_: Any) -> Round:
    """A contender (see `benchmarks.contender`): a round builds the index and searches once."""
    array = np.load(rows, mmap_mode="r")
    query = unit_rows(1, array.shape[1], 1)

    def do_round() -> Done:
        build(kind, array)(query)
        return Done(len(array))

    do_round()  # compiles, and reads the file
    return do_round


def searching(kind: str, rows: str, queries: int, truth: list[list[int]]) -> Round:
    """A contender: a round searches for so many queries, whose true rows are known."""
    array = np.load(rows, mmap_mode="r")
    asked = unit_rows(queries, array.shape[1], 1)
    search = build(kind, array)
    found = search(asked)
    hits = sum(len(set(some.tolist()) & set(true)) for some, true in zip(found, truth, strict=True))

    def do_round() -> Done:
        search(asked)
        return Done(queries, {"recall": hits / (TOP_K * queries)})

    return do_round


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.search", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, least=TOP_K, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dimension", type=int, least=1, default=384)
    parser.add_argument("--queries", type=int, least=1, nargs="+", default=[1, 64])
    parser.add_argument("--rounds", type=int, least=1, default=5)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    return parser.parse_args()


def main() -> None:
    """Prints three tables a size."""
    args = parse()
    print(side_by_side.heading(), flush=True)
    results = [found for count in args.rows for found in measure(count, args)]
    side_by_side.report("search", results, args.output)


def measure(count: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The tables of one size, printed, and their figures."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npy"
        rows = unit_rows(count, args.dimension, 0)
        np.save(file, rows)
        asked = {number: unit_rows(number, args.dimension, 1) for number in args.queries}
        truth = {number: brute_force(each, rows).tolist() for number, each in asked.items()}
        del rows
        options = {"rows": str(file)}
        title = f"{count:,} rows of {args.dimension}"
        # NumPy needs no index.
        found.append(show(f"{title}: built", "rows", "building", options, args.rounds, {"NumPy"}))
        for number, rows_of in truth.items():
            options = {"rows": str(file), "queries": number, "truth": rows_of}
            flops = 2.0 * count * args.dimension
            name = f"{title}: {number} quer{'y' if number == 1 else 'ies'}"
            found.append(show(name, "queries", "searching", options, args.rounds, set(), flops))
    return found


def show(
    title: str, unit: str, factory: str, options: dict[str, Any], rounds: int, without: set[str], flops: float = 0.0
) -> dict[str, Any]:
    """One table, printed, and its figures. `flops`: of a query that all rows are multiplied with."""
    contenders = [
        Contender(name, f"benchmarks.search:{factory}", {"kind": kind, **options})
        for name, kind in KINDS.items()
        if name not in without
    ]
    exact = [one.name for one in contenders if one.options["kind"] != "cells"]
    needs = {name: Need(flops, "float32") for name in exact} if flops else {}
    comparison = side_by_side.compare(title, unit, contenders, rounds, needs=needs)
    found = comparison.to_json()
    print(f"\n{side_by_side.table(comparison)}")
    recalls = {name: each["notes"].get("recall", 1.0) for name, each in found["contenders"].items()}
    for name, recall in recalls.items():
        if recall < 1:
            print(f"  {name}: finds {recall:.1%} of the nearest")
    return found


if __name__ == "__main__":
    run_command(main)
