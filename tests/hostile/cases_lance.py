"""Indexes on disk, and the embeddings that they are built of."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import DONE, EITHER, REFUSED, Case, Reader
from hostile.damages import Make, both, change, cut, each, flip, instead, remove, write
from hostile.json_damages import WHOLE

KIND = "indexes on disk"
SEARCH = ["--model=model", "--index=lance", "--query=a cat", "--output=out.json"]
BUILD = ["build", "--embeddings=embeddings", "--output=lance"]
ABOUT, SMALL, FILE = "lance/index.json", "bytes/index.json", "embeddings/emb.parquet"
DATA, VERSIONS = "lance/rows.lance/data/*", "lance/rows.lance/_versions/*"


def npy(name: str, array: np.ndarray) -> Make:
    return lambda folder: np.save(folder / "embeddings" / name, array)


def only(array: np.ndarray) -> Make:
    """One file of .npy in place of the table."""
    return both(remove(FILE), npy("a.npy", array))


def table(changed: Callable[[Any], Any], name: str = "emb.parquet") -> Make:
    """Writes the table of embeddings with a change."""

    def make(folder: Path) -> None:
        import pyarrow.parquet

        pyarrow.parquet.write_table(changed(pyarrow.parquet.read_table(folder / FILE)), folder / "embeddings" / name)

    return make


def other_model(found: Any) -> Any:
    """The table says that another model made it."""
    model = json.loads(found.schema.metadata[b"simcse_jax.model"]) | {"sha256": "1" * 64}
    return found.replace_schema_metadata({b"simcse_jax.model": json.dumps(model)})


INDEX: dict[str, Make] = {"no table": remove("lance/rows.lance"), "data cut": each(DATA, cut, 0.5)}
INDEX |= {"versions cut": each(VERSIONS, cut, 0.5), "no index.json": remove(ABOUT)}
INDEX |= {"index.json is a list": write(ABOUT, "[]")}
BUILDS = {  # options of `build` into an index of float32
    "another precision than the index has": "--precision=int8",
    "a precision that is none": "--output=new --precision=int4",
    "codes of bytes": "--output=new --precision=int8 --codes=product",
    "ranges that are text": "--output=new --precision=int8 --ranges=text.txt",
    "into a bucket of another store": "--output=s3://b/x",
    "into the embeddings": "--output=embeddings",
}
ONES = np.ones((3, 32), np.float32)
EMBEDDINGS: dict[str, Make] = {"none": remove(FILE), "a file cut": cut(FILE, 0.5)}
EMBEDDINGS |= {"a folder in place of a file": instead(FILE, Path.mkdir), "no model named": only(ONES)}
EMBEDDINGS |= {"unfinished": write("embeddings/.b.parquet.partial", b"x")}
EMBEDDINGS |= {"a file twice": table(lambda found: found, "emb2.parquet")}
EMBEDDINGS |= {"no embedding": table(lambda found: found.drop(["embedding"]))}
EMBEDDINGS |= {"no rows at all": table(lambda found: found.slice(0, 0))}
EMBEDDINGS |= {"a row left out": table(lambda found: found.filter([row != 3 for row in range(len(found))]))}
EMBEDDINGS |= {"another model": table(other_model)}


def cases() -> Iterator[Case]:
    """Damaged indexes are searched and added to, damaged embeddings are added."""
    search = Reader("search", SEARCH, ["model", "lance", "text.txt"])
    build = Reader("search", BUILD, ["embeddings", "lance", "text.txt"])
    for damage, make in INDEX.items():
        yield search.case(KIND, damage, make)
    for damage, make in EMBEDDINGS.items():
        yield build.case(KIND, f"embeddings: {damage}", make)
    for seed in range(3):
        yield search.case(KIND, f"data changed by seed {seed}", each(DATA, flip, seed), EITHER)
        yield build.case(KIND, f"embeddings: changed by seed {seed}", flip(FILE, seed), EITHER)
    of_bytes = Reader("search", [*SEARCH, "--index=bytes"], ["model", "bytes"])
    for damage in ("empty", "truncated", "a list", "nested deeply"):
        yield of_bytes.case(KIND, f"of bytes: {damage}", change(SMALL, WHOLE[damage]))
    for damage, options in BUILDS.items():
        yield build.case(KIND, f"build: {damage}", None, REFUSED, "", *options.split())
    yield search.case(KIND, "--backend=faiss", None, DONE, "", "--backend=faiss")  # which has no effect here
    for option in ("sentences=text.txt", "refine=0", "nprobes=many"):
        yield search.case(KIND, f"--{option}", None, REFUSED, "", f"--{option}")
