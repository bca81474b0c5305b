"""Indexes on disk, and the embeddings that they are built of."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import EITHER, REFUSED, Case
from hostile.damages import Make, both, cut, flip, instead, remove, write
from hostile.json_damages import change_json

KIND = "indexes on disk"
SEARCH = ["--model=model", "--index=lance", "--query=a cat", "--output=out.json"]
BUILD = ["build", "--embeddings=embeddings", "--output=lance"]
ABOUT, FILE = "lance/index.json", "embeddings/emb.parquet"


def each(pattern: str, damage: Callable[[str], Make]) -> Make:
    """Damages all files of a pattern."""

    def make(folder: Path) -> None:
        for path in sorted(folder.glob(pattern)):
            damage(str(path.relative_to(folder)))(folder)

    return make


def about(change: Callable[[dict[str, Any]], Any]) -> Make:
    return change_json(ABOUT, change)


def npy(name: str, array: np.ndarray) -> Make:
    return lambda folder: np.save(folder / "embeddings" / name, array)


def table(change: Callable[[Any], Any], name: str = "emb.parquet") -> Make:
    """Writes the table of embeddings with a change."""

    def make(folder: Path) -> None:
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(folder / FILE)
        pyarrow.parquet.write_table(change(found), folder / "embeddings" / name)

    return make


def maker(**fields: object) -> Make:
    """Another model in the metadata."""

    def change(found: Any) -> Any:
        model = json.loads(found.schema.metadata[b"simcse_jax.model"]) | fields
        return found.replace_schema_metadata({b"simcse_jax.model": json.dumps(model)})

    return table(change)


INDEX: dict[str, tuple[Make, str]] = {
    "no table": (remove("lance/rows.lance"), REFUSED),
    "no data": (each("lance/rows.lance/data/*", remove), REFUSED),
    "data cut": (each("lance/rows.lance/data/*", lambda name: cut(name, 0.5)), REFUSED),
    "empty data": (each("lance/rows.lance/data/*", lambda name: write(name, b"")), REFUSED),
    "no versions": (each("lance/rows.lance/_versions/*", remove), REFUSED),
    "versions cut": (each("lance/rows.lance/_versions/*", lambda name: cut(name, 0.5)), REFUSED),
    "no index.json": (remove(ABOUT), REFUSED),
    "index.json cut": (cut(ABOUT, 0.5), REFUSED),
    "index.json is a list": (write(ABOUT, "[]"), REFUSED),
    "another format": (about(lambda value: value.update(format=9)), REFUSED),
    "another backend": (about(lambda value: value.update(backend="annoy")), REFUSED),
    "no backend": (about(lambda value: value.pop("backend")), REFUSED),
    "more rows": (about(lambda value: value.update(rows=99)), REFUSED),
    "rows below zero": (about(lambda value: value.update(rows=-1)), REFUSED),
    "a version that is not there": (about(lambda value: value.update(version=10**6)), REFUSED),
    "a version of text": (about(lambda value: value.update(version="1")), REFUSED),
    "no model": (about(lambda value: value.pop("model")), REFUSED),
    "another model": (about(lambda value: value["model"].update(sha256="0" * 64)), REFUSED),
    "another pooler": (about(lambda value: value["model"].update(pooler="avg_top2")), REFUSED),
    "another size": (about(lambda value: value["model"].update(dimension=16)), REFUSED),
    "another similarity": (about(lambda value: value["model"].update(similarity="manhattan")), REFUSED),
    **{
        f"data changed by seed {seed}": (
            each("lance/rows.lance/data/*", lambda name, seed=seed: flip(name, seed)),
            EITHER,
        )
        for seed in range(3)
    },
}
SMALL = "bytes/index.json"
OF_BYTES: dict[str, Callable[[dict[str, Any]], Any]] = {  # changes of index.json
    "no precision": lambda value: value.pop("precision") and None,
    "another precision": lambda value: value.update(precision="int4"),
    "a precision that is a list": lambda value: value.update(precision=["int8"]),
    "bits that have ranges": lambda value: value.update(precision="binary"),
    "no ranges": lambda value: value.pop("ranges") and None,
    "ranges that were changed": lambda value: value["ranges"][0].__setitem__(0, -9.0),
    "ranges of NaN": lambda value: value["ranges"][0].__setitem__(0, float("nan")),
    "ranges of words": lambda value: value.update(ranges="wide"),
    "ranges of another size": lambda value: value.update(ranges=[[0.0], [1.0]]),
    "no hash of the ranges": lambda value: value.pop("ranges_sha256") and None,
    "the format of float32": lambda value: value.update(format=1),
    "another similarity": lambda value: value["model"].update(similarity="dot"),
}
BUILDS: dict[str, tuple[list[str], str]] = {  # options of `build` into an index of float32, and into none
    "another precision than the index has": (["--output=lance", "--precision=int8"], "not of int8"),
    "other codes than the index has": (["--output=lance", "--codes=binary"], "not of codes binary"),
    "ranges of an index of float32": (["--output=lance", "--ranges=ranges.npy"], "ranges"),
    "a precision that is none": (["--output=new", "--precision=int4"], "--precision"),
    "codes that are none": (["--output=new", "--codes=pq"], "--codes"),
    "codes of bytes": (["--output=new", "--precision=int8", "--codes=product"], "codes"),
    "ranges of bits": (["--output=new", "--precision=binary", "--ranges=ranges.npy"], "ranges"),
    "ranges of another size": (["--output=new", "--precision=int8", "--ranges=narrow.npy"], "narrow.npy"),
    "ranges that fall": (["--output=new", "--precision=int8", "--ranges=falling.npy"], "falling.npy"),
    "ranges that are missing": (["--output=new", "--precision=int8", "--ranges=none.npy"], "none.npy"),
    "ranges that are text": (["--output=new", "--precision=int8", "--ranges=text.txt"], "text.txt"),
}


def write_ranges(folder: Path) -> None:
    for name, low, high, size in (("ranges", -1, 1, 32), ("narrow", -1, 1, 8), ("falling", 1, -1, 32)):
        np.save(folder / f"{name}.npy", np.stack([np.full(size, low), np.full(size, high)]).astype(np.float32))


EMBEDDINGS: dict[str, tuple[Make, str]] = {
    "none": (remove(FILE), REFUSED),
    "a file cut": (cut(FILE, 0.5), REFUSED),
    "an empty file": (write(FILE, b""), REFUSED),
    "text in place of a file": (write(FILE, "a cat\n"), REFUSED),
    "a folder in place of a file": (instead(FILE, Path.mkdir), REFUSED),
    "one kind next to another": (npy("more.npy", np.zeros((3, 32), np.float32)), REFUSED),
    "another size": (
        both(remove(FILE), npy("a.npy", np.ones((3, 8), np.float32)), npy("b.npy", np.ones((3, 9), np.float32))),
        REFUSED,
    ),
    "float64": (both(remove(FILE), npy("a.npy", np.ones((3, 32)))), REFUSED),
    "one axis": (both(remove(FILE), npy("a.npy", np.ones(32, np.float32))), REFUSED),
    "no model named": (both(remove(FILE), npy("a.npy", np.ones((3, 32), np.float32))), REFUSED),
    "unfinished": (write("embeddings/.b.parquet.partial", b"x"), REFUSED),
    "a file twice": (table(lambda found: found, "emb2.parquet"), REFUSED),
    "no embedding": (table(lambda found: found.drop(["embedding"])), REFUSED),
    "rows as text": (
        table(lambda found: found.set_column(1, "row", found["row"].cast("string"))),
        REFUSED,
    ),
    "no rows at all": (table(lambda found: found.slice(0, 0)), REFUSED),
    "a row left out": (table(lambda found: found.filter([row != 3 for row in range(len(found))])), REFUSED),
    "another model": (both(maker(sha256="1" * 64)), REFUSED),
    "a model without a name": (maker(name=None), REFUSED),
    "a model of another size": (maker(dimension=8), REFUSED),
    **{f"changed by seed {seed}": (flip(FILE, seed), EITHER) for seed in range(3)},
}


def cases() -> Iterator[Case]:
    """Damaged indexes are searched and added to, damaged embeddings are added."""
    for damage, (make, end) in INDEX.items():
        yield Case(KIND, "search", damage, SEARCH, ("model", "lance"), make, end=end)
    for damage, (make, end) in EMBEDDINGS.items():
        inputs = ("embeddings", "lance")
        yield Case(KIND, "search", f"embeddings: {damage}", BUILD, inputs, make, end=end)
    for damage, change in OF_BYTES.items():
        arguments = [*SEARCH, "--index=bytes"]
        yield Case(KIND, "search", f"of bytes: {damage}", arguments, ("model", "bytes"), change_json(SMALL, change))
    for damage, (options, names) in BUILDS.items():
        arguments, inputs = [*BUILD, *options], ("embeddings", "lance", "text.txt")
        yield Case(KIND, "search", damage, arguments, inputs, write_ranges, names=names)
    for option, value in (("sentences", "text.txt"), ("backend", "faiss"), ("refine", "0"), ("nprobes", "many")):
        arguments = [*SEARCH, f"--{option}={value}"]
        yield Case(KIND, "search", f"--{option}={value}", arguments, ("model", "lance", "text.txt"))
    for name, output in (
        ("a bucket of another store", "s3://b/x"),
        ("a file", "text.txt"),
        ("the embeddings", "embeddings"),
    ):
        arguments = ["build", "--embeddings=embeddings", f"--output={output}"]
        yield Case(KIND, "search", f"build into {name}", arguments, ("embeddings", "text.txt"))
