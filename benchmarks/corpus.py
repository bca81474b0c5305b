"""Reading a prepared corpus, cold and warm: seconds to the first batch, rows a second, work a step, and memory.

    python -m benchmarks.corpus --folder DIR [--rows 100000000] [--data FILE] [--rounds 5] [--output FILE]

The corpus is made first: the rows of --data are tokenized once, and drawn again and again straight into files. Each
reading is a process of its own. Cold means that the system was asked to forget the files (posix_fadvise, DONTNEED).
The corpus is removed afterwards, unless --keep is given; --keep again reads the same one.

Work a step: the main thread waits for as long as a step would take, and then takes the next batch, which a thread has
read in the meantime. What it takes is the main thread's time; the processor's time is that of both threads, when the
process sees the pages of a batch for the first time, and when it reads the same batches again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks import side_by_side
from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from simcse_jax.commands.command_line import run_command
from simcse_jax.data.corpus.manifest import NAME, Manifest, Shard, write_manifest
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.data.corpus.prepared_batches import PreparedBatches, PreparedCorpus
from simcse_jax.data.identity import hash_file
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_file

AT_ONCE = 1 << 16  # rows of a record batch
SHARD_ROWS = 1 << 22  # of a file
STEP_SECONDS = 0.05  # that a step takes, where its work is measured
WORK_STEPS = 100
FIGURES = {
    "first_batch_s": "first batch, s",
    "rows_per_second": "rows/s",
    "main_ms": "main thread a step, ms",
    "processor_ms": "processor a step, ms",
    "again_ms": "processor a step again, ms",
    "private_mib": "private memory, MiB",
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.corpus", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="where the corpus is made, on the disk that is measured")
    parser.add_argument("--rows", type=int, least=1, default=10**8, help="of the corpus")
    parser.add_argument("--data", help="a file of sentences; default: random tokens of 4 to 32 a sentence")
    parser.add_argument("--model", default=MINILM, help="whose tokenizer is used")
    parser.add_argument("--batch-size", type=int, least=1, default=512, help="rows of a batch")
    parser.add_argument("--batches", type=int, least=1, default=200, help="that are read for the rate")
    parser.add_argument("--rounds", type=int, least=1, default=5, help="cold and warm readings, in turn")
    parser.add_argument("--keep", action="store_true", help="keep the corpus")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)  # the process of one reading
    args = parser.parse_args()
    if args.rows < args.batch_size:
        raise UserError(f"--rows {args.rows}: must be --batch-size ({args.batch_size}) or more")
    if not args.read and (folder := Path(args.folder)).exists() and not (args.keep and (folder / NAME).exists()):
        raise UserError(f"--folder {folder}: exists; choose a new one, or read the corpus there with --keep")
    return args


def make(folder: Path, rows: int, ids: np.ndarray, lengths: np.ndarray) -> None:
    """A corpus of rows drawn from a pool.

    Args:
      folder: a new one.
      rows: of the corpus.
      ids, lengths: the tokens of the pool's sentences, one after the other, and their numbers.
    """
    folder.mkdir(parents=True)
    generator, longest = np.random.default_rng(0), int(lengths.max())
    starts, shards = np.cumsum(lengths) - lengths, []
    schema = pa.schema({"input_ids": pa.list_(pa.list_(pa.uint16()), 1)})
    for number, first in enumerate(range(0, rows, SHARD_ROWS)):
        path, own = folder / f"data-{number:05}.arrow", min(SHARD_ROWS, rows - first)
        histogram = np.zeros(longest + 1, np.int64)
        with open(path, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for done in range(0, own, AT_ONCE):
                drawn = generator.integers(len(lengths), size=min(AT_ONCE, own - done))
                sizes = lengths[drawn]
                within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                tokens = ids[np.repeat(starts[drawn], sizes) + within].astype(np.uint16)
                sentences = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *sizes]), pa.int32()), tokens)
                writer.write_batch(pa.record_batch([pa.FixedSizeListArray.from_arrays(sentences, 1)], schema))
                histogram += np.bincount(sizes, minlength=longest + 1)
        size, total = path.stat().st_size, int(histogram @ np.arange(longest + 1))
        shards.append(Shard(path.name, "drawn", size, hash_file(path), own, own, 1, total, {}, [histogram.tolist()]))
        forget(path)
    settings = {"special_tokens": [], "max_length": [longest] * 2, "keep_text": False, "vocabulary": 1 << 16}
    write_manifest(folder, Manifest(settings | {"prompts": [], "labels": False, "tokenizer": ""}, shards))


def pool(data: str | None, model: str) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of the sentences of a file, one after the other, and their numbers."""
    if data is None:
        lengths = np.random.default_rng(1).integers(4, 33, size=10_000)
        return np.random.default_rng(2).integers(30_000, size=lengths.sum()), lengths
    from simcse_jax.data.sentences import read_sentences
    from simcse_jax.runs.loading import load_model

    tokens = load_model(model).tokenizer([text for text in read_sentences(data) if text.strip()], 32)
    return np.concatenate(tokens), np.array([len(each) for each in tokens])


def forget(path: Path) -> None:
    """Takes a file out of the system's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def private_mib() -> float:
    """The memory of this process that is no file's."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def work(batches: PreparedBatches, first: int) -> tuple[float, float]:
    """Milliseconds a step: what the main thread waits for a batch, and the time of the processor in both threads."""
    waited, processor = [], time.process_time()
    for step in range(first, first + WORK_STEPS):
        time.sleep(STEP_SECONDS)
        started = time.perf_counter()
        batches[step]
        waited.append(time.perf_counter() - started)
    return 1000 * median(waited), 1000 * (time.process_time() - processor) / WORK_STEPS


def read(folder: Path, batch_size: int, count: int) -> dict[str, float]:
    """Opens a corpus and reads batches of it."""
    before, started = private_mib(), time.perf_counter()
    corpus, seed = PreparedCorpus(Prepared(folder), 0), int(time.time()) % 2**32
    batches = corpus.batches(batch_size, seed)
    batches[0]
    found = {"first_batch_s": time.perf_counter() - started}
    started = time.perf_counter()
    for step in range(1, count + 1):
        batches[step]
    found["rows_per_second"] = count * batch_size / (time.perf_counter() - started)
    found["main_ms"], found["processor_ms"] = work(batches, count + 1)
    _, found["again_ms"] = work(corpus.batches(batch_size, seed), count + 1)
    return found | {"private_mib": private_mib() - before}


def reading(args: argparse.Namespace, cold: bool) -> dict[str, float]:
    """The figures of a process of its own."""
    if cold:
        for path in Path(args.folder).iterdir():
            forget(path)
    else:
        for path in Path(args.folder).glob("*.arrow"):
            with open(path, "rb") as file:
                while file.read(1 << 24):
                    pass
    options = ["--batch-size", str(args.batch_size), "--batches", str(args.batches), "--folder", args.folder, "--read"]
    command = [sys.executable, "-m", "benchmarks.corpus", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:  # it has said why
        sys.exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Makes the corpus, reads it, prints a table."""
    args = parse()
    folder = Path(args.folder)
    if args.read:
        print(json.dumps(read(folder, args.batch_size, args.batches)))
        return
    if not folder.exists():
        started = time.perf_counter()
        try:
            make(folder, args.rows, *pool(args.data, args.model))
        except BaseException:  # Ctrl-C, too
            shutil.rmtree(folder, ignore_errors=True)
            raise
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{args.rows:,} rows, {size / args.rows:.1f} bytes each, made in {time.perf_counter() - started:.0f} s")
    try:
        results: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
        for _ in range(args.rounds):
            for name, each in results.items():
                each.append(reading(args, name == "cold"))
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    print(table(results))
    side_by_side.report("corpus", [{"title": name, "readings": each} for name, each in results.items()], args.output)


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """The best and the median of each figure."""
    lines = ["| | " + " | ".join(FIGURES.values()) + " |", "|" + " --- |" * (len(FIGURES) + 1)]
    for name, rounds in results.items():
        for what, choose in (("best", min), ("median", median)):
            best = {figure: max if figure == "rows_per_second" and what == "best" else choose for figure in FIGURES}
            cells = [f"{best[figure]([each[figure] for each in rounds]):,.4g}" for figure in FIGURES]
            lines.append(f"| {name}, {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(main)
