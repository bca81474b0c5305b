"""Files of embeddings, as `encode` writes them."""

import json
from pathlib import Path

import numpy as np

from simcse_jax.index.identity import ModelIdentity
from simcse_jax.vectors.parquet import MAKER

MODEL = ModelIdentity("runs/a", "avg", False, 12, "0" * 64, "float32", "cosine", "")


def clustered(rows: int, dimension: int = 12, seed: int = 0) -> np.ndarray:
    """Around a few points, of any length."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(5, dimension))
    return (centres[generator.integers(0, 5, rows)] + 0.5 * generator.normal(size=(rows, dimension))).astype(np.float32)


def write_parquet(path: Path, embeddings: np.ndarray, first: int = 0, maker=MODEL, **columns: object) -> None:
    """`columns` replace those that `encode` writes; None leaves one out."""
    import pyarrow
    import pyarrow.parquet

    kind = pyarrow.list_(pyarrow.from_numpy_dtype(embeddings.dtype), embeddings.shape[1])
    numbers = np.arange(first, first + len(embeddings))
    content = {
        "sentence": pyarrow.array([f"sentence {row}" for row in numbers], pyarrow.string()),
        "row": pyarrow.array(numbers),
        "embedding": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(embeddings.ravel()), type=kind),
    }
    table = pyarrow.table({name: array for name, array in (content | columns).items() if array is not None})
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = None if maker is None else {MAKER: json.dumps(maker._asdict())}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
