"""A block of rows: read, encoded, and written to a file of its own, whole or not at all."""

import itertools
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.bulk.embeddings.encoder import Encoder
from simcse_jax.bulk.embeddings.plan import Block
from simcse_jax.bulk.embeddings.quantized import quantization_of
from simcse_jax.bulk.embeddings.token_rows import schema_of_tokens, write_tokens
from simcse_jax.data.corpus.shared_folder import Plan, check_unchanged, claimed, size_of, written_to
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.encoding.parquet import rows_table, schema_of
from simcse_jax.encoding.quantization import Clipped, dtype_of
from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder

ROWS = 1 << 14  # encoded at a time
ABOUT = b"simcse_jax"  # where a file has what is known of it


class Facts(NamedTuple):
    """What is known of a block's file."""

    plan: str  # the block's
    row: int  # the block's
    rows: int
    dimension: int
    cut: int  # sentences that were longer than the model reads


def is_made(folder: Folder, block: Block) -> bool:
    """Whether a block's file is there; it gets its name when it is whole."""
    return size_of(folder / block.file) is not None


def make_block(
    folder: Folder,
    plan: Plan,
    block: Block,
    encoder: Encoder,
    *,
    advance: Callable[[int], object] | None = None,
    patient: bool = False,
) -> bool:
    """Makes a block's file, unless it is there, or another process makes it; returns whether it is there now.

    Args:
      folder: of the embeddings.
      plan, block: see `plan`.
      encoder: the plan's.
      advance: called with the number of rows done since the last call.
      patient: see `corpus.shared_folder.claimed`.
    """
    with claimed(folder / block.file, patient) as mine:
        if mine and not is_made(folder, block):
            _make(folder, plan, block, encoder, advance)
        return mine


def read_facts(folder: Folder, block: Block) -> Facts:
    """What a block's file says of itself."""
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
        raise UserError(f"{path}: damaged; remove it, and give the command again")
    if facts.plan != block.plan:
        raise UserError(f"{path}: is another command's; remove it, and give the command again")
    return facts


def _make(folder: Folder, plan: Plan, block: Block, encoder: Encoder, advance: Callable[[int], object] | None) -> None:
    import pyarrow.parquet

    about = plan.key["sources"][block.source]
    source, keep_text = SentenceFile(about["name"], about["column"]), plan.key["--keep-text"]
    dtype = dtype_of(plan.key["--output-dtype"])
    small = quantization_of(folder, plan, encoder)
    size = encoder.dimension if small is None else small.width
    if encoder.of_tokens:
        schema = schema_of_tokens(size, dtype, keep_text)
    else:
        schema = schema_of(size, dtype, encoder.maker(), keep_text, None if small is None else small.content())
    sentences = itertools.islice(source.read(block.first, block.place), block.rows)
    with written_to(folder / block.file) as path:
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            done, cut, clipped = 0, 0, Clipped()
            check_unchanged(folder, plan, [about["name"]])  # in a file that was, a block begins anywhere
            if encoder.of_tokens:
                done, cut = write_tokens(writer, encoder, sentences, block.row, advance)
            while part := list(itertools.islice(sentences, ROWS)):
                encoded = encoder.encode(part, advance)
                with np.errstate(over="ignore"):
                    rows = encoded.embeddings if small is None else small.encode(encoded.embeddings, clipped)
                    embeddings = np.asarray(rows, dtype)
                if not np.isfinite(embeddings).all():
                    raise UserError(f"{folder / block.file}: an embedding has an element beyond {dtype}; write float32")
                writer.write_table(rows_table(schema, part if keep_text else None, block.row + done, embeddings))
                done, cut = done + len(part), cut + encoded.cut
            clipped.warn(stacklevel=2)
            check_unchanged(folder, plan, [about["name"]])
            if done != block.rows:
                raise UserError(f"{about['name']}: has fewer rows than were counted; remove {folder}, and start again")
            facts: dict[str, Any] = Facts(block.plan, block.row, done, encoder.dimension, cut)._asdict()
            writer.add_key_value_metadata({ABOUT: json.dumps(facts).encode()})
        with path.open("rb") as file:
            os.fsync(file.fileno())  # before it has its name, which says that it is whole
