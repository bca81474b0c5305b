"""Search in random unit vectors: exact, `approximate=True`, NumPy and, where it is installed, FAISS.

    python -m benchmarks.search --output search.json

Milliseconds a query, for 1 query and for 64 together, the five nearest of each: the fastest of `--repeats` searches,
after one that compiles and moves the rows to the device. Recall is the share of the exact search's five that a search
finds; random vectors have no clusters, so it is a hard case for FAISS's cells. Each size runs in a process of its own,
whose peak memory so far is given: NumPy's rows and the index's, then FAISS's copies as well.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

TOP_K = 5


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


def peak_gib() -> float:
    """This process's peak memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(count: int, dimension: int, repeats: int) -> Iterator[dict]:
    """One size: a dictionary a search, as soon as it is done."""
    import jax

    from simcse_jax.index import Index

    rows = unit_rows(count, dimension, 0)
    index = Index.from_unit_rows([""] * count, rows)
    queries = {number: unit_rows(number, dimension, 1) for number in (1, 64)}
    exact: dict[int, list[set[int]]] = {}

    def timed(name: str, search: Callable[[np.ndarray], list]) -> dict:
        measured = {"rows": count, "dimension": dimension, "search": name}
        for number, asked in queries.items():
            found = [set(map(int, each)) for each in search(asked)]
            seconds = []
            for _ in range(repeats):
                start = time.perf_counter()
                search(asked)
                seconds.append(time.perf_counter() - start)
            hits = sum(len(some & true) for some, true in zip(found, exact.setdefault(number, found), strict=True))
            measured[f"ms_a_query_of_{number}"] = 1000 * min(seconds) / number
            measured["recall"] = hits / (TOP_K * number)
        return {**measured, "peak_gib": peak_gib()}

    def ours(**options: object) -> Callable[[np.ndarray], list]:
        return lambda asked: [[result.row for result in each] for each in index.search(asked, TOP_K, -1.0, **options)]

    device = jax.devices()[0].device_kind
    yield timed(f"exact, {device}", ours())
    yield timed(f"approximate, {device}", ours(approximate=True))
    yield timed("NumPy", lambda asked: list(brute_force(asked, rows)))
    if importlib.util.find_spec("faiss") is not None:
        yield timed("FAISS, flat", ours(backend="faiss"))
        yield timed("FAISS, cells", ours(approximate=True, backend="faiss"))


def main() -> None:
    """Prints a table; a process a size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", help="a JSON file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        for measured in measure(int(args.rows), args.dimension, args.repeats):
            print(json.dumps(measured), flush=True)
        return
    everything = []
    print("| rows | search | 1 query, ms | 64 queries, ms each | recall | peak memory, GiB |\n" + "| --- " * 6 + "|")
    for count in args.rows.split(","):
        command = [sys.executable, "-m", "benchmarks.search", "--child", "--rows", count]
        command += ["--dimension", str(args.dimension), "--repeats", str(args.repeats)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                row = json.loads(line)
                everything.append(row)
                times = f"{row['ms_a_query_of_1']:.2f} | {row['ms_a_query_of_64']:.2f}"
                print(
                    f"| {row['rows']:,} | {row['search']} | {times} | {row['recall']:.3f} | {row['peak_gib']:.2f} |",
                    flush=True,
                )
        if child.returncode:
            sys.exit(child.returncode)
    if args.output:
        Path(args.output).write_text(json.dumps(everything, indent=2) + "\n")


if __name__ == "__main__":
    main()
