"""An index on disk (LanceDB) next to FAISS's inverted lists, in clustered vectors: building, recall, time, memory.

    python -m benchmarks.search_disk [--rows 1000000] [--dimension 384] [--queries 200] [--output FILE]
    python -m benchmarks.search_disk --embeddings FOLDER                      # of encode, in place of mixtures

The vectors are a mixture of Gaussians, a thousand in each: noise alone has no neighbours to find. Each contender builds
in one process and searches in another, one query at a time, so that the memory is that of a process that only searches.
Private memory is what is not mapped from a file (RssAnon). Disk while building counts everything in the folder of the
index and the temporary folder, as a multiple of the embeddings. Recall is the share of the true ten, by cosine in
float32. Needs lancedb and faiss-cpu.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file
from simcse_jax.index.embedding_files import EmbeddingFiles
from simcse_jax.index.identity import ModelIdentity

TOP_K = 10
KINDS = {"simcse_jax, LanceDB": "lance", "FAISS, inverted lists": "cells", "FAISS, cells and codes": "codes"}
CLUSTER, SPREAD, AT_ONCE = 1000, 0.7, 10_000
LEAST = 1000  # rows: FAISS finds its cells and codes in them


def mixture(generator: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    """Points around random centres."""
    chosen = centres[generator.integers(0, len(centres), count)]
    return chosen + SPREAD * generator.standard_normal(chosen.shape, np.float32)


def write_vectors(folder: Path, rows: int, dimension: int, queries: int) -> None:
    """`embeddings/rows.npy`, written a part at a time, and `queries.npy`."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((max(rows // CLUSTER, 1), dimension), np.float32)
    (folder / "embeddings").mkdir()
    with open(folder / "embeddings" / "rows.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, AT_ONCE):
            file.write(mixture(generator, centres, min(AT_ONCE, rows - start)).data)
    np.save(folder / "queries.npy", mixture(generator, centres, queries))


def find_truth(files: EmbeddingFiles, queries: np.ndarray) -> np.ndarray:
    """The rows of the largest cosines, (Q, TOP_K), and no more than a few thousand vectors in memory."""
    best, rows = np.full((len(queries), TOP_K), -np.inf, np.float32), np.zeros((len(queries), TOP_K), np.int64)
    for batch in files.batches():
        vectors = batch.embeddings.astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        scores = np.concatenate([best, queries @ vectors.T], axis=1)
        numbers = np.concatenate([rows, np.broadcast_to(batch.rows, (len(queries), len(vectors)))], axis=1)
        kept = np.argpartition(scores, -TOP_K, axis=1)[:, -TOP_K:]
        best, rows = np.take_along_axis(scores, kept, axis=1), np.take_along_axis(numbers, kept, axis=1)
    return rows


def model_of(dimension: int) -> ModelIdentity:
    """A model that nobody has."""
    return ModelIdentity("none", "avg", False, dimension, "0" * 64, "float32", "cosine", "")


def private_memory() -> float:
    """MB of this process that are mapped from no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def build(kind: str, folder: Path) -> dict[str, float]:
    """Builds one of `KINDS` from the embeddings in the folder."""
    files, started = EmbeddingFiles(str(folder / "embeddings")), time.perf_counter()
    if kind == "lance":
        from simcse_jax.index import lance_build

        lance_build.build(folder / kind, files, model_of(files.dimension))
    else:
        import faiss

        cells = max(1, int(4 * np.sqrt(files.count)))
        flat = faiss.IndexFlatIP(files.dimension)
        if kind == "cells":
            index = faiss.IndexIVFFlat(flat, files.dimension, cells, faiss.METRIC_INNER_PRODUCT)
        else:
            index = faiss.IndexIVFPQ(flat, files.dimension, cells, files.dimension // 4, 8, faiss.METRIC_INNER_PRODUCT)
        sample = np.concatenate([batch.embeddings[:: max(1, files.count // (64 * cells))] for batch in files.batches()])
        index.train(unit(sample))
        for batch in files.batches():
            index.add_with_ids(unit(batch.embeddings), batch.rows)
        (folder / kind).mkdir()
        faiss.write_index(index, str(folder / kind / "index.faiss"))
    return {"build_seconds": time.perf_counter() - started}


def unit(vectors: np.ndarray) -> np.ndarray:
    """A copy, of unit length and in float32."""
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def search(kind: str, folder: Path) -> dict[str, float]:
    """Searches for each query alone."""
    queries, truth = np.load(folder / "queries.npy"), np.load(folder / "truth.npy")
    queries = unit(queries)
    if kind == "lance":
        from simcse_jax.index.lance import LanceIndex

        index: Any = LanceIndex(folder / kind, model_of(queries.shape[1]))

        def find(query: np.ndarray) -> list[int]:
            return [result.row for result in index.search(query, TOP_K)[0]]
    else:
        import faiss

        index = faiss.read_index(str(folder / kind / "index.faiss"))
        index.nprobe = 20

        def find(query: np.ndarray) -> list[int]:
            return index.search(query, TOP_K)[1][0].tolist()

    find(queries[:1])
    seconds, hits = [], 0
    for query, true in zip(queries, truth, strict=True):
        started = time.perf_counter()
        found = find(query[None])
        seconds.append(time.perf_counter() - started)
        hits += len(set(found) & set(true.tolist()))
    return {
        "recall": hits / truth.size,
        "median_ms": 1000 * float(np.median(seconds)),
        "p95_ms": 1000 * float(np.quantile(seconds, 0.95)),
        "private_mb": private_memory(),
    }


def size(folder: Path) -> int:
    """Bytes on disk; files come and go meanwhile."""
    found = subprocess.run(["du", "-sb", str(folder)], capture_output=True, text=True).stdout.split()
    return int(found[0]) if found else 0


def in_process(step: str, kind: str, folder: Path) -> dict[str, float]:
    """One step in a process of its own, and the most that it had on disk."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    command = ["env", f"TMPDIR={temporary}", sys.executable, "-m", "benchmarks.search_disk"]
    process = subprocess.Popen([*command, "--step", step, kind, str(folder)], stdout=subprocess.PIPE, text=True)
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            most[0] = max(most[0], size(folder / kind) + size(temporary))

    watcher = threading.Thread(target=watch)
    watcher.start()
    printed = process.communicate()[0]
    ended.set()
    watcher.join()
    if process.returncode:
        sys.exit(process.returncode)
    found = json.loads(printed.splitlines()[-1])
    if step == "build":
        given = size((folder / "embeddings").resolve())
        found |= {"most_disk": most[0] / given, "disk": size(folder / kind) / given}
    return found


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.search_disk", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, least=LEAST, default=1_000_000)
    parser.add_argument("--dimension", type=int, least=4, default=384)
    parser.add_argument("--queries", type=int, least=1, default=200)
    parser.add_argument("--embeddings", help="a folder that encode wrote; every so many of its rows are the queries")
    parser.add_argument("--only", choices=KINDS.values(), nargs="+", default=list(KINDS.values()))
    parser.add_argument("--folder", help="for the files, removed afterwards (default: the temporary folder)")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Prints a line for each contender."""
    args = parse()
    if args.step:
        step, kind, folder = args.step
        print(json.dumps({"build": build, "search": search}[step](kind, Path(folder))))
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        if args.embeddings:
            (folder / "embeddings").symlink_to(Path(args.embeddings).resolve())
            files = EmbeddingFiles(str(folder / "embeddings"))
            step = max(1, files.count // args.queries)
            asked = [batch.embeddings[batch.rows % step == 0] for batch in files.batches()]
            np.save(folder / "queries.npy", np.concatenate(asked).astype(np.float32)[: args.queries])
        else:
            write_vectors(folder, args.rows, args.dimension, args.queries)
            files = EmbeddingFiles(str(folder / "embeddings"))
        np.save(folder / "truth.npy", find_truth(files, unit(np.load(folder / "queries.npy"))))
        print(f"{files.count:,} rows of {files.dimension}, the nearest {TOP_K}", flush=True)
        for title, kind in KINDS.items():
            if kind in args.only:
                found = in_process("build", kind, folder) | in_process("search", kind, folder)
                print(title, json.dumps({name: round(value, 3) for name, value in found.items()}), flush=True)
                results.append({"title": title} | found)
    side_by_side.report("search_disk", results, args.output)


if __name__ == "__main__":
    run_command(main)
