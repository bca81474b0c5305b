"""Encodes the sentences of an Apache Beam pipeline, as `simcse-jax encode` would.

python encode_beam.py MODEL 'text/*.parquet' embeddings/part [OPTIONS of Beam, such as those of Dataflow]
"""

import sys
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.parquetio import ReadFromParquet, WriteToParquet
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.shared import Shared

from simcse_jax import SimCSE
from simcse_jax.vectors.parquet import schema_of

MODEL, INPUT, OUTPUT, *OPTIONS = sys.argv[1:]


class Encode(beam.DoFn):
    """From rows to rows with embeddings."""

    def __init__(self, name: str):
        self.name, self.shared = name, Shared()

    def setup(self) -> None:
        """Opens one model for all threads of a process."""
        self.model = self.shared.acquire(lambda: SimCSE(self.name))

    def process(self, batch: Any) -> Any:
        """Encodes a batch, a list of dictionaries; gives those with embeddings."""
        embeddings = self.model.encode([row["sentence"] for row in batch])
        for row, embedding in zip(batch, embeddings.astype(np.float32), strict=True):
            yield {"sentence": row["sentence"], "row": row["row"], "embedding": embedding}


if __name__ == "__main__":
    model = SimCSE(MODEL)
    maker = model.identity()._replace(prompt=model.prompt_of())._asdict()
    schema = schema_of(model.dimension, np.dtype(np.float32), maker)
    with beam.Pipeline(options=PipelineOptions(OPTIONS, save_main_session=True)) as pipeline:
        (
            pipeline
            | ReadFromParquet(INPUT, columns=["row", "sentence"])
            | beam.BatchElements(min_batch_size=1024, max_batch_size=4096)
            | beam.ParDo(Encode(MODEL))
            | WriteToParquet(OUTPUT, schema, file_name_suffix=".parquet", use_compliant_nested_type=True)
        )
