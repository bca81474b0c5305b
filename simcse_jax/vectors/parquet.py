"""Embeddings as a table: a row for each sentence, for .parquet files."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAKER = b"simcse_jax.model"  # a file's metadata has the model that made it there, in JSON
QUANTIZATION = b"simcse_jax.quantization"  # and how its embeddings are stored, where that is not as numbers


def schema_of(
    size: int,
    dtype: np.dtype,
    maker: Mapping[str, Any] | None,
    texts: bool = True,
    quantization: Mapping[str, Any] | None = None,
) -> Any:
    """The columns `sentence`, if wanted, `row` (its number in the input, from 0) and `embedding`.

    Args:
      maker: what identifies the model; None: an index must be given its name.
      quantization: the `content` of a `quantization.Quantization`; None: embeddings are numbers.
    """
    import pyarrow

    kind = pyarrow.list_(pyarrow.from_numpy_dtype(dtype), size)
    columns = [("row", pyarrow.int64()), ("embedding", kind)]
    schema = pyarrow.schema([("sentence", pyarrow.string()), *columns] if texts else columns)
    facts = {MAKER: maker, QUANTIZATION: quantization}
    metadata = {key: json.dumps(value) for key, value in facts.items() if value is not None}
    return schema.with_metadata(metadata) if metadata else schema


def rows_table(schema: Any, texts: Sequence[str] | None, first_row: int, embeddings: np.ndarray) -> Any:
    """A table of embeddings (R, D), numbered from `first_row`; `texts` are R sentences, None if the schema has none."""
    import pyarrow

    kind = schema.field("embedding").type
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.ascontiguousarray(embeddings).ravel()), type=kind)
    numbers = pyarrow.array(np.arange(first_row, first_row + len(embeddings)))
    return pyarrow.table([*([] if texts is None else [pyarrow.array(texts)]), numbers, vectors], schema=schema)
