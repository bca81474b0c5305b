"""Encodes blocks of rows, each into a file of its own that is whole or absent."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from simcse_jax.bulk.embeddings.embeddings_folder import (
    ABOUT,
    Facts,
    Manifest,
    RowBlock,
    blocks_of,
    finish,
    is_made,
    missing,
)
from simcse_jax.bulk.embeddings.encoder import RowEncoder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan, check_unchanged, read_or_write
from simcse_jax.data.identity import read_sealed
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import RANGES
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, written_once
from simcse_jax.simcse import TokenEmbeddings
from simcse_jax.vectors.parquet import rows_table, schema_of
from simcse_jax.vectors.quantization import PACKED, SCALAR, Quantization, dtype_of

SENTENCES = 1 << 14  # encoded at a time
TOKEN_ROWS = 1 << 10  # sentences whose tokens are encoded at a time and held in memory
TOKENS = 1 << 17  # their tokens at most, if all are of maximum length: 0.5 GB for 1,024 elements


def make_block(
    folder: Folder,
    plan: FolderPlan,
    block: RowBlock,
    encoder: RowEncoder,
    advance: Callable[[int], object] | None = None,
) -> None:
    """Makes a block's file; one that another process made meanwhile stays."""
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
    with (
        written_once(folder / block.file) as path,
        pyarrow.parquet.ParquetWriter(path, schema) as writer,
    ):
        done, cut = 0, 0
        check_unchanged(folder, plan, [about["name"]])  # else the block may begin anywhere
        if encoder.of_tokens:
            done, cut = write_tokens(writer, encoder, sentences, block.row, advance)
        while part := list(itertools.islice(sentences, SENTENCES)):
            encoded = encoder.encode(part, advance)
            with np.errstate(over="ignore"):
                rows = encoded.embeddings if small is None else small.encode(encoded.embeddings)
                embeddings = np.asarray(rows, dtype)
            if not np.isfinite(embeddings).all():
                raise UserError(f"{folder / block.file}: an embedding has an element beyond {dtype}; write float32")
            writer.write_table(rows_table(schema, part if keep_text else None, block.row + done, embeddings))
            done, cut = done + len(part), cut + encoded.cut
        check_unchanged(folder, plan, [about["name"]])
        if done != block.rows:
            raise UserError(f"{about['name']}: has fewer rows than were counted; remove {folder}, and start again")
        facts: dict[str, Any] = Facts(block.row, done, encoder.dimension, cut)._asdict()
        writer.add_key_value_metadata({ABOUT: json.dumps(facts).encode()})


def quantization_of(folder: Folder, plan: FolderPlan, encoder: RowEncoder) -> Quantization | None:
    """The folder's `.quantization.json`, which the first process that needs it writes; None if not quantized."""
    if plan.key["--output-dtype"] not in (*SCALAR, *PACKED):
        return None
    path = plan.file(folder, RANGES)
    if (content := read_sealed(path)) is None:
        quantization = encoder.quantization(_sentences(plan))
        assert quantization is not None
        content = read_or_write(path, quantization.content())
    return Quantization.from_content(content, str(path))


def _sentences(plan: FolderPlan) -> Iterator[str]:
    """The sentences of all sources, in order."""
    sources = plan.key["sources"]
    return itertools.chain.from_iterable(SentenceFile(source["name"], source["column"]).read() for source in sources)


def schema_of_tokens(size: int, dtype: np.dtype, texts: bool) -> Any:
    """The columns `sentence` (if `texts`), `row`, `tokens` (T texts) and `token_embeddings` (T lists of `size`)."""
    import pyarrow

    vectors = pyarrow.list_(pyarrow.list_(pyarrow.from_numpy_dtype(dtype), size))
    columns = [("row", pyarrow.int64()), ("tokens", pyarrow.list_(pyarrow.string())), ("token_embeddings", vectors)]
    return pyarrow.schema([("sentence", pyarrow.string()), *columns] if texts else columns)


def tokens_table(schema: Any, texts: Sequence[str], first_row: int, embeddings: Sequence[TokenEmbeddings]) -> Any:
    """Rows of token embeddings; refuses numbers too large for the schema's type."""
    import pyarrow

    kind = schema.field("token_embeddings").type.value_type
    with np.errstate(over="ignore"):
        rows = np.concatenate([of_text.embeddings for of_text in embeddings]).astype(kind.value_type.to_pandas_dtype())
    if not np.isfinite(rows).all():
        raise UserError(f"an embedding has an element beyond {kind.value_type}; write float32")
    ends = np.cumsum([0] + [len(of_text.tokens) for of_text in embeddings]).astype(np.int32)
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), type=kind)
    columns = {
        "sentence": pyarrow.array(texts, pyarrow.string()),
        "row": pyarrow.array(np.arange(first_row, first_row + len(texts))),
        "tokens": pyarrow.array([of_text.tokens for of_text in embeddings], schema.field("tokens").type),
        "token_embeddings": pyarrow.ListArray.from_arrays(ends, vectors),
    }
    return pyarrow.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def write_tokens(
    writer: Any,
    encoder: RowEncoder,
    sentences: Iterator[str],
    first_row: int,
    advance: Callable[[int], object] | None,
) -> tuple[int, int]:
    """Encodes the tokens of sentences and writes their rows, `TOKEN_ROWS` at a time, or fewer if long; counts both.

    Args:
      writer: a `pyarrow.parquet.ParquetWriter` with the schema of `schema_of_tokens`.
      advance: called with the number of sentences done since the last call.
    """
    done, cut = 0, 0
    count = max(1, min(TOKEN_ROWS, TOKENS // encoder.max_length))
    while part := list(itertools.islice(sentences, count)):
        encoded = encoder.encode_tokens(part, advance)
        writer.write_table(tokens_table(writer.schema, part, first_row + done, encoded.sentences))
        done, cut = done + len(part), cut + encoded.cut
    return done, cut


def encode_here(folder: Folder, plan: FolderPlan, encoder: RowEncoder, shown: bool = True) -> Manifest:
    """Makes the missing blocks, along with any number of other processes; returns when all blocks are there.

    Each process takes them in a random order of its own, and leaves out those that are there by then. So two encode the
    same block rarely before the end, at which each does a few that others are encoding too.
    """
    blocks = blocks_of(folder, plan)
    rows, unmade = sum(block.rows for block in blocks), missing(folder, blocks)
    with Progress(rows, done=rows - sum(block.rows for block in unmade), shown=shown) as bar:
        for block in unmade:
            if not is_made(folder, block):
                make_block(folder, plan, block, encoder, bar.advance)
    return finish(folder, plan, blocks)
