import json

import numpy as np

from simcse_jax.vectors.parquet import MAKER, rows_table, schema_of


def test_a_row_has_its_number_embedding_and_text_if_wanted_and_the_metadata_the_model():
    for dtype, texts in (("float16", None), ("float32", ["a cat", "", "a dog"])):
        embeddings = np.arange(12, dtype=dtype).reshape(3, 4)[:, ::-1]
        table = rows_table(schema_of(4, np.dtype(dtype), None, texts is not None), texts, 7, embeddings)
        assert table.column_names == [*["sentence"] * (texts is not None), "row", "embedding"]
        assert table["row"].to_pylist() == [7, 8, 9] and (texts is None or table["sentence"].to_pylist() == texts)
        np.testing.assert_array_equal(table["embedding"].to_pylist(), embeddings)
    assert json.loads(schema_of(4, np.dtype("float32"), {"sha256": "0"}).metadata[MAKER]) == {"sha256": "0"}
    assert schema_of(4, np.dtype("float32"), None).metadata is None
