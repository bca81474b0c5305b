"""The token embeddings of sentences as rows of a .parquet file, written some at a time."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.bulk.embeddings.encoder import Encoder
from simcse_jax.errors import UserError
from simcse_jax.simcse import TokenEmbeddings

ROWS = 1 << 10  # sentences encoded at a time: their tokens' embeddings are in memory
TOKENS = 1 << 17  # at most, of those sentences, if each is as long as it can be; of 1,024 elements they take 0.5 GB


class Written(NamedTuple):
    """How many sentences were written, and how many of them were cut."""

    rows: int
    cut: int


def schema_of_tokens(size: int, dtype: np.dtype, texts: bool) -> Any:
    """The columns `sentence`, if wanted, `row`, `tokens` (T texts) and `token_embeddings` (T lists of fixed size).

    Args:
      size: the elements of an embedding.
      dtype: of an element.
      texts: whether sentences are kept.
    """
    import pyarrow

    vectors = pyarrow.list_(pyarrow.list_(pyarrow.from_numpy_dtype(dtype), size))
    columns = [("row", pyarrow.int64()), ("tokens", pyarrow.list_(pyarrow.string())), ("token_embeddings", vectors)]
    return pyarrow.schema([("sentence", pyarrow.string()), *columns] if texts else columns)


def tokens_table(schema: Any, texts: Sequence[str], first_row: int, found: Sequence[TokenEmbeddings]) -> Any:
    """Some rows.

    Args:
      schema: of `schema_of_tokens`.
      texts: R sentences.
      first_row: the number of the first one.
      found: R sentences' tokens.

    Raises:
      UserError: when a number is too large for the schema's type.
    """
    import pyarrow

    kind = schema.field("token_embeddings").type.value_type
    with np.errstate(over="ignore"):
        rows = np.concatenate([each.embeddings for each in found]).astype(kind.value_type.to_pandas_dtype())
    if not np.isfinite(rows).all():
        raise UserError(f"an embedding has an element beyond {kind.value_type}; write float32")
    ends = np.cumsum([0] + [len(each.tokens) for each in found]).astype(np.int32)
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), type=kind)
    columns = {
        "sentence": pyarrow.array(texts, pyarrow.string()),
        "row": pyarrow.array(np.arange(first_row, first_row + len(texts))),
        "tokens": pyarrow.array([each.tokens for each in found], schema.field("tokens").type),
        "token_embeddings": pyarrow.ListArray.from_arrays(ends, vectors),
    }
    return pyarrow.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def write_tokens(
    writer: Any, encoder: Encoder, sentences: Iterator[str], first_row: int, advance: Callable[[int], object] | None
) -> Written:
    """Encodes sentences and writes their rows, `ROWS` at a time, or fewer long ones.

    Args:
      writer: a `pyarrow.parquet.ParquetWriter` with a schema of `schema_of_tokens`.
      encoder: of the sentences.
      sentences: in their order.
      first_row: the number of the first one.
      advance: called with the number of sentences done since the last call.
    """
    done, cut = 0, 0
    count = max(1, min(ROWS, TOKENS // encoder.max_length))
    while part := list(itertools.islice(sentences, count)):
        encoded = encoder.encode_tokens(part, advance)
        writer.write_table(tokens_table(writer.schema, part, first_row + done, encoded.sentences))
        done, cut = done + len(part), cut + encoded.cut
    return Written(done, cut)
