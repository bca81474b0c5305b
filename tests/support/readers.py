"""Other people's programs that read a folder of files as one set of data."""

from pathlib import Path


def _pyarrow(folder: Path, kind: str) -> list[dict]:
    import pyarrow.dataset

    return pyarrow.dataset.dataset(folder, format="json" if kind == "jsonl" else kind).to_table().to_pylist()


def _pandas(folder: Path, kind: str) -> list[dict]:
    import pandas

    return pandas.read_parquet(folder).to_dict("records")


def _datasets(folder: Path, kind: str) -> list[dict]:
    import datasets

    name = "json" if kind == "jsonl" else kind
    cache = str(folder.with_name(f"cache of {folder.name}"))
    return datasets.load_dataset(name, data_dir=str(folder), cache_dir=cache)["train"].to_list()


def _polars(folder: Path, kind: str) -> list[dict]:
    import polars

    return (polars.read_parquet if kind == "parquet" else polars.read_ndjson)(folder / f"*.{kind}").to_dicts()


def _polars_folder(folder: Path, kind: str) -> list[dict]:
    import polars

    return polars.scan_parquet(folder, hidden_file_prefix=".").collect().to_dicts()


def _duckdb(folder: Path, kind: str) -> list[dict]:
    import duckdb

    read = {"parquet": "read_parquet", "jsonl": "read_json"}[kind]
    return duckdb.connect().sql(f"from {read}('{folder}/*.{kind}')").to_arrow_table().to_pylist()


# Of .parquet; each gives the rows.
READERS = {"pyarrow": _pyarrow, "pandas": _pandas, "datasets": _datasets, "polars": _polars}
READERS |= {"polars, the folder": _polars_folder, "duckdb": _duckdb}
JSONL_READERS = {name: READERS[name] for name in ("pyarrow", "datasets", "polars", "duckdb")}


def rows_read(reader: str, folder: Path, kind: str = "parquet") -> list[dict]:
    return sorted(READERS[reader](folder, kind), key=lambda row: row["row"])
