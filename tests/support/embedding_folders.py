from pathlib import Path

import pyarrow.parquet

from simcse_jax.bulk.embeddings.embeddings_folder import make_plan
from simcse_jax.bulk.embeddings.encoder import EncodingOptions, RowEncoder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan, enter


def begin(folder: Path, encoder: RowEncoder, *sources: Path, block_rows: int = 8, keep_text: bool = True) -> FolderPlan:
    plan = make_plan([str(source) for source in sources], None, encoder.about(), block_rows, keep_text)
    enter(folder, plan)
    return plan


def encoder_of(model: Path, **options) -> RowEncoder:
    return RowEncoder(EncodingOptions(str(model), **options))


def rows_in(folder: Path) -> list[dict]:
    files = sorted(folder.glob("embeddings-*.parquet"))
    rows = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: row["row"])
