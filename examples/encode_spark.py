"""Encodes the sentences of a folder with Spark, as `simcse-jax encode` would.

spark-submit encode_spark.py MODEL text embeddings

All executors must see the folders. A partition is a task with a file of its own, which is written anew when the task is
tried again.
"""

import sys
from collections.abc import Iterator

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
from pyspark import TaskContext
from pyspark.sql import SparkSession

from simcse_jax import SimCSE
from simcse_jax.vectors.parquet import schema_of

MODEL, INPUT, OUTPUT = sys.argv[1:]


def encode(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Writes a partition's rows into a file. Spark's own writer knows no lists of fixed size."""
    model = SimCSE(MODEL)
    maker = model.identity()._replace(prompt=model.prompt_of())._asdict()
    schema = schema_of(model.dimension, np.dtype(np.float32), maker)
    name, rows = f"{OUTPUT}/part-{TaskContext.get().partitionId():05}.parquet", 0
    with fsspec.open(name, "wb", auto_mkdir=True) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for batch in batches:
            embeddings = model.encode(batch["sentence"].to_pylist()).astype(np.float32)
            vectors = pyarrow.FixedSizeListArray.from_arrays(embeddings.ravel(), type=schema.field("embedding").type)
            writer.write_batch(pyarrow.record_batch([batch["sentence"], batch["row"], vectors], schema=schema))
            rows += len(batch)
    yield pyarrow.record_batch({"file": [name], "rows": [rows]})


if __name__ == "__main__":
    spark = SparkSession.builder.appName("encode").getOrCreate()
    text = spark.read.parquet(INPUT).select("row", "sentence").repartition(4)  # several for each executor
    for done in text.mapInArrow(encode, "file string, rows long").collect():
        print(f"{done.file}: {done.rows:,} rows")
