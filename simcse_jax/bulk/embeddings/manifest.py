"""The list of all blocks of a folder of embeddings, written last."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simcse_jax.bulk.embeddings.blocks import Facts, read_facts
from simcse_jax.bulk.embeddings.plan import Block
from simcse_jax.data.corpus.shared_folder import (
    AT_A_TIME,
    Plan,
    check_unchanged,
    claimed,
    names_in,
    read_sealed,
    remove_leftovers,
    write_sealed,
)
from simcse_jax.host.hidden import MANIFEST
from simcse_jax.host.storage import Folder

LEFTOVERS = ".embeddings-*.tmp*"  # what killed processes may leave


class Manifest(NamedTuple):
    """What a folder has once all of its blocks are there."""

    key: dict[str, Any]  # the plan's
    rows: int
    dimension: int
    cut: int  # sentences that were longer than the model reads
    files: list[list[Any]]  # of each block: its file, and the number of its first row


def finish(folder: Folder, plan: Plan, blocks: Sequence[Block]) -> Manifest | None:
    """Writes the manifest, unless another process is writing it."""
    with claimed(folder / MANIFEST, patient=True) as mine:
        if not mine:
            return None
        if read_manifest(folder, plan) is None:
            check_unchanged(folder, plan)
            facts = _facts(folder, blocks)
            (dimension,) = {each.dimension for each in facts}
            files = [[block.file, block.row] for block in blocks]
            rows, cut = (sum(column) for column in zip(*((each.rows, each.cut) for each in facts), strict=True))
            write_sealed(plan.own(folder, MANIFEST), Manifest(plan.key, rows, dimension, cut, files)._asdict())
        remove_leftovers(folder, LEFTOVERS)
    return read_manifest(folder, plan)


def read_manifest(folder: Folder, plan: Plan) -> Manifest | None:
    """The manifest; None while blocks are missing.

    Raises:
      UserError: when it was changed since it was written.
    """
    found = read_sealed(plan.own(folder, MANIFEST))
    return None if found is None else Manifest(**found)


def complete(folder: Folder, plan: Plan, blocks: Sequence[Block]) -> Manifest | None:
    """The manifest of a folder in which nothing is missing."""
    manifest = read_manifest(folder, plan)
    if manifest is None or missing(folder, blocks):
        return None
    _facts(folder, blocks)
    return manifest


def missing(folder: Folder, blocks: Sequence[Block]) -> list[Block]:
    """The blocks whose files are not there."""
    there = names_in(folder)
    return [block for block in blocks if block.file not in there]


def _facts(folder: Folder, blocks: Sequence[Block]) -> list[Facts]:
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return list(threads.map(lambda block: read_facts(folder, block), blocks))
