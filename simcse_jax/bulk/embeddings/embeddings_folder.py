"""A folder of embeddings of many files: its plan, its blocks of rows, and its manifest, which is written last."""

import fnmatch
import json
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simcse_jax.bulk.embeddings import shared_folder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan
from simcse_jax.data.identity import names_in, read_sealed, size_of, stamp_of
from simcse_jax.data.rows import Place
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import COUNTED, MANIFEST
from simcse_jax.host.storage import Folder

ABOUT = b"simcse_jax"  # the metadata key of a file's facts


class RowBlock(NamedTuple):
    """Rows that are encoded into a file of their own."""

    source: int  # the index of the source
    number: int  # the block's index in the source
    first: int  # its first row in the source, from 0
    rows: int
    row: int  # its first row, counted through all sources
    place: Place | None  # where it begins in a text file

    @property
    def file(self) -> str:
        """Its file's name."""
        return f"embeddings-{self.source:05}-{self.number:05}.parquet"


def make_plan(
    sources: Sequence[str], column: str | None, about: Mapping[str, Any], block_rows: int, keep_text: bool
) -> FolderPlan:
    """Examines all sources, reading only their first rows.

    Args:
      about: everything besides the sentences that the embeddings depend on.
    """
    with ThreadPoolExecutor(shared_folder.AT_A_TIME) as threads:  # a bucket answers slowly
        files = list(threads.map(lambda name: SentenceFile(name, column), sources))
        stamps = dict(zip(sources, threads.map(stamp_of, sources), strict=True))
    described = [
        {"name": name, "bytes": stamps[name].bytes, "column": file.column}
        for name, file in zip(sources, files, strict=True)
    ]
    key = {"sources": described, **about, "--block-rows": block_rows, "--keep-text": keep_text}
    return FolderPlan(key, {name: stamp.written for name, stamp in stamps.items()})


def count_rows(folder: Folder, plan: FolderPlan, source: int) -> dict[str, Any]:
    """The number of a source's rows, and where its blocks begin: as the folder has it, or counted now."""
    path = _counted(folder, plan, source)
    if (counted := read_sealed(path)) is None:
        about = plan.key["sources"][source]
        rows, places = SentenceFile(about["name"], about["column"]).count(plan.key["--block-rows"])
        shared_folder.check_unchanged(folder, plan, [about["name"]])
        counted = shared_folder.read_or_write(path, {"rows": rows, "places": places})
    return counted


def blocks_of(folder: Folder, plan: FolderPlan) -> list[RowBlock]:
    """All blocks. Counts rows first if necessary; other processes count other sources first."""
    sources = range(len(plan.sources))
    with ThreadPoolExecutor(shared_folder.AT_A_TIME) as threads:
        counts = list(threads.map(lambda source: read_sealed(_counted(folder, plan, source)), sources))
    for source in random.sample(sources, len(sources)):
        counts[source] = counts[source] or count_rows(folder, plan, source)
    blocks: list[RowBlock] = []
    size, row = plan.key["--block-rows"], 0
    for source, counted in enumerate(counts):
        assert counted is not None
        places = [Place(*place) for place in counted["places"]]
        for number, first in enumerate(range(0, counted["rows"], size)):
            rows = min(size, counted["rows"] - first)
            blocks.append(RowBlock(source, number, first, rows, row, places[number] if places else None))
            row += rows
    if not blocks:
        raise UserError(f"{plan.sources[0]}: holds no sentences")
    return blocks


def _counted(folder: Folder, plan: FolderPlan, source: int) -> Folder:
    return plan.file(folder, COUNTED.replace("*", f"{source:05}"))


class Facts(NamedTuple):
    """The facts in a block's file."""

    row: int  # the block's
    rows: int
    dimension: int
    cut: int  # the number of sentences that were cut


def is_made(folder: Folder, block: RowBlock) -> bool:
    """Whether a block's file exists; it is renamed into place when it is whole."""
    return size_of(folder / block.file) is not None


def read_facts(folder: Folder, block: RowBlock) -> Facts:
    """The facts in a block's file; refuses another file."""
    import pyarrow
    import pyarrow.parquet

    path = folder / block.file
    try:
        if not path.is_file():  # a pipe would not be opened before somebody writes to it
            raise ValueError(path)
        with path.open("rb") as file:
            facts = Facts(**json.loads(pyarrow.parquet.read_metadata(file).metadata[ABOUT]))
    except (OSError, ValueError, TypeError, KeyError, pyarrow.ArrowException):
        facts = None
    if facts is None or (facts.row, facts.rows) != (block.row, block.rows):
        raise UserError(f"{path}: damaged; remove it, and run the command again")
    return facts


class Manifest(NamedTuple):
    """The contents of a complete folder."""

    key: dict[str, Any]  # the plan's
    rows: int
    dimension: int
    cut: int  # the number of sentences that were cut
    files: list[list[Any]]  # each block's file and first row


def missing(folder: Folder, blocks: Sequence[RowBlock]) -> list[RowBlock]:
    """The blocks without a file, in a random order, which no other process has."""
    names = names_in(folder)
    unmade = [block for block in blocks if block.file not in names]
    return random.sample(unmade, len(unmade))


def finish(folder: Folder, plan: FolderPlan, blocks: Sequence[RowBlock]) -> Manifest:
    """The manifest of a folder that has all blocks, none of them damaged; writes it if it is not there."""
    with ThreadPoolExecutor(shared_folder.AT_A_TIME) as threads:
        facts = list(threads.map(lambda block: read_facts(folder, block), blocks))
    manifest = read_manifest(folder, plan)
    if manifest is None:
        shared_folder.check_unchanged(folder, plan)
        (dimension,) = {part.dimension for part in facts}
        files = [[block.file, block.row] for block in blocks]
        rows, cut = sum(part.rows for part in facts), sum(part.cut for part in facts)
        manifest = Manifest(plan.key, rows, dimension, cut, files)
        shared_folder.read_or_write(plan.file(folder, MANIFEST), manifest._asdict())
    for name in fnmatch.filter(names_in(folder), shared_folder.LEFTOVERS):
        (folder / name).unlink(missing_ok=True)
    return manifest


def read_manifest(folder: Folder, plan: FolderPlan) -> Manifest | None:
    """The manifest; None before all blocks were there."""
    content = read_sealed(plan.file(folder, MANIFEST))
    return None if content is None else Manifest(**content)
