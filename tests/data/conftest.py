"""Files in the formats of training data."""

import pyarrow.parquet
import pytest
from support.corpora import tokenizer_of


@pytest.fixture(scope="session")
def tokenizer(tiny_bert):
    return tokenizer_of(tiny_bert)


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def write_parquet(tmp_path):
    def write(**columns: list) -> str:
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "train.parquet")
        return str(tmp_path / "train.parquet")

    return write
