"""What a folder of embeddings is made from: the files, their rows, and how these are divided into blocks."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simcse_jax.data.corpus.shared_folder import (
    AT_A_TIME,
    Plan,
    check_unchanged,
    claimed,
    names_in,
    read_sealed,
    stamp_of,
    write_sealed,
)
from simcse_jax.data.rows import Place
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.data.separated import reading_of
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import COUNTED, DOT
from simcse_jax.host.storage import Folder, as_path, is_remote

BLOCK_ROWS = 1 << 17
LATER = ("--tokens", "--ranges")  # that plans of earlier versions lack; without them, a plan is the same
LOOK_SECONDS = 0.5  # between two looks at what other processes count


class Block(NamedTuple):
    """Rows that are encoded together, into a file of their own."""

    plan: str  # the fingerprint of the folder's
    source: int  # the number of the file with the sentences
    number: int  # of the block among the source's
    first: int  # its first row in the source, from 0
    rows: int
    row: int  # the number of its first row among the rows of all sources
    place: Place | None  # where it begins in a text file

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"embeddings-{self.source:05}-{self.number:05}.parquet"


def fingerprint(plan: Plan) -> str:
    """SHA-256 of a plan. All that is made of it says so: a process that was forgotten may still write."""
    key = {name: value for name, value in plan.key.items() if value is not None or name not in LATER}
    return hashlib.sha256(json.dumps([key, plan.stamps], sort_keys=True).encode()).hexdigest()


def make_plan(
    sources: Sequence[str], column: str | None, about: Mapping[str, Any], block_rows: int, keep_text: bool
) -> Plan:
    """Looks at all sources, and reads none but its first rows.

    Args:
      sources: names of files.
      column: of the sentences; None takes a usual one.
      about: all that the embeddings depend on in addition to the sentences.
      block_rows: the most rows of a block.
      keep_text: whether sentences are written next to their embeddings.
    """
    with ThreadPoolExecutor(AT_A_TIME) as threads:  # a bucket answers slowly
        looked = list(threads.map(lambda name: (name, SentenceFile(name, column).column, stamp_of(name)), sources))
        readings = dict(zip(sources, threads.map(lambda name: reading_of(as_path(name)), sources), strict=True))
    described = [{"name": name, "bytes": stamp.bytes, "column": chosen} for name, chosen, stamp in looked]
    key = {"sources": described, **about, "--block-rows": block_rows, "--keep-text": keep_text}
    if read := {name: reading for name, reading in readings.items() if reading}:
        key["read as"] = read
    return Plan(key, {name: stamp.written for name, _, stamp in looked}, DOT)


def count_rows(folder: Folder, plan: Plan, source: int, patient: bool = False) -> bool:
    """Counts the rows of a source, unless that was done, or another process does; returns whether it is done now."""
    path = plan.own(folder, _counted(source))
    with claimed(folder / _counted(source), patient) as mine:
        if mine and read_sealed(path) is None:
            about = plan.key["sources"][source]
            rows, places = SentenceFile(about["name"], about["column"]).count(plan.key["--block-rows"])
            check_unchanged(folder, plan, [about["name"]])
            write_sealed(path, {"plan": fingerprint(plan), "rows": rows, "places": places})
        return mine


def blocks_of(folder: Folder, plan: Plan) -> list[Block]:
    """All blocks; rows that were not counted yet are counted first, together with other processes."""
    patient = False
    while left := uncounted(folder, plan):
        done = [count_rows(folder, plan, source, patient) for source in left]
        if not any(done):
            time.sleep(LOOK_SECONDS)
        patient = is_remote(folder) and not any(done)
    found: list[Block] = []
    size, row, mark = plan.key["--block-rows"], 0, fingerprint(plan)
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        paths = [plan.own(folder, _counted(source)) for source in range(len(plan.sources))]
        counts = threads.map(read_sealed, paths)
    for source, (path, counted) in enumerate(zip(paths, counts, strict=True)):
        if counted is None or counted["plan"] != mark:
            raise UserError(f"{path}: is another command's; remove it, and give the command again")
        places = [Place(*each) for each in counted["places"]]
        for number, first in enumerate(range(0, counted["rows"], size)):
            rows = min(size, counted["rows"] - first)
            found.append(Block(mark, source, number, first, rows, row, places[number] if places else None))
            row += rows
    if not found:
        raise UserError(f"{plan.sources[0]}: holds no sentences")
    return found


def uncounted(folder: Folder, plan: Plan) -> list[int]:
    """The sources whose rows were not counted yet."""
    there = names_in(folder)
    return [source for source in range(len(plan.sources)) if plan.own(folder, _counted(source)).name not in there]


def _counted(source: int) -> str:
    return COUNTED.replace("*", f"{source:05}")
