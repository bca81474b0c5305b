"""Prepared corpora: manifests and shards that are damaged or do not fit, and wrong ways to prepare one."""

import json
from collections.abc import Iterator
from pathlib import Path

from hostile.case import EITHER, REFUSED, Case
from hostile.damages import PLACES, Make, both, cut, flip, instead, remove, write
from hostile.json_damages import VALUES, WHOLE
from hostile.seeds import PREPARE, train_arguments

KIND = "prepared corpora"
MANIFEST, SHARD, FACTS = "corpus/corpus.json", "corpus/shard-00000-00001", "corpus/shard-00000-00001.json"
INPUTS = ("model", "text.txt", "pairs.tsv", "corpus")
TRAIN = train_arguments("run", data__train="corpus")
RUN = ("run", "run/*")  # a run may have begun when a changed row is read
ALL_ROWS = ["--config.train.batch_size=12"]


def field(name: str, value: object) -> Make:
    """Another value of a manifest's field."""

    def make(folder: Path) -> None:
        content = json.loads((folder / MANIFEST).read_text())
        content[name] = value
        (folder / MANIFEST).write_text(json.dumps(content))

    return make


def changed_tokens(folder: Path) -> None:
    """Every token is another one."""
    data = bytearray((folder / SHARD).read_bytes())
    data[: 1 << 16] = bytes(1 << 16)
    (folder / SHARD).write_bytes(data)


def zeros(folder: Path) -> None:
    """What a disk may have in place of what was lost."""
    data = bytearray((folder / SHARD).read_bytes())
    data[1 << 16 : 2 << 16] = bytes(1 << 16)
    (folder / SHARD).write_bytes(data)


def training(damage: str, make: Make, names: str, *more: str, end: str = REFUSED, inputs: tuple = INPUTS) -> Case:
    return Case(KIND, "train", damage, [*TRAIN, *more], inputs, make, end, names, leaves=RUN)


def nothing(folder: Path) -> None:
    """No damage: the arguments are wrong."""


def cases() -> Iterator[Case]:
    for damage, change in WHOLE.items():
        data = lambda folder, change=change: write(MANIFEST, change((folder / MANIFEST).read_bytes()))(folder)  # noqa: E731
        yield training(f"a manifest that is {damage}", data, "corpus.json")
    content = ("key", "sources", "rows", "columns", "token_bytes", "labels", "histogram", "shards", "sha256", "format")
    for name in content:
        for damage, value in VALUES.items():
            yield training(f"a manifest whose {name} is {damage}", field(name, value), "corpus.json")
    for share in (0, 0.3, 0.99):
        yield training(f"a shard cut to {share:.0%}", cut(SHARD, share), SHARD)
    yield training("a shard whose index is zeros", zeros, SHARD, *ALL_ROWS)
    yield training("a shard with other tokens", changed_tokens, SHARD, *ALL_ROWS)
    for seed in range(8):
        yield training(f"a shard changed by seed {seed}", flip(SHARD, seed, 200), "", *ALL_ROWS, end=EITHER)
    for damage, put in PLACES.items():
        yield training(f"a shard that is {damage}", instead(SHARD, put), SHARD)
    yield training("another length", nothing, "data.max_length=32", "--config.data.max_length=32")
    yield training(
        "another tokenizer", nothing, "tokenizer", "--config.model.init_from=roberta", inputs=(*INPUTS, "roberta")
    )
    for argument in ("columns.anchor=text", "mixed=True", "augment.name=crop", "subsample=13", "positives=all"):
        yield training(f"data.{argument}", nothing, f"data.{argument.split('=')[0]}", f"--config.data.{argument}")
    for name in ("gs://", "gs:///x", "s3://bucket/corpus", "gs://no such bucket/corpus"):
        yield training(f"data.train={name}", nothing, name, f"--config.data.train={name}")
    yield from preparing()


def preparing() -> Iterator[Case]:
    def case(damage: str, make: Make, names: str, *more: str, end: str = REFUSED, leaves: tuple = ()) -> Case:
        return Case(KIND, "prepare", damage, [*PREPARE, *more], INPUTS, make, end, names, leaves=leaves)

    for option in ("max-length=8", "shard-rows=5", "keep-text", "labels"):
        yield case(f"another --{option} into one folder", nothing, "", f"--{option}")
    yield case("a source that was changed", write("text.txt", "a cat\na dog\n"), "another corpus")
    yield case("into a folder with other files", both(remove("corpus"), others), "other files")
    yield case("without a plan", remove("corpus/plan.json"), "other files")
    verify = ["--output=corpus", "--verify"]
    yield Case(KIND, "prepare", "verify of other tokens", verify, INPUTS, changed_tokens, REFUSED, SHARD)
    yield Case(KIND, "prepare", "verify of a shard that is missing", verify, INPUTS, remove(SHARD), REFUSED, SHARD)
    yield case("verify with other options", nothing, "--data", "--verify")
    for damage, put in PLACES.items():
        yield case(f"data is {damage}", both(remove("corpus"), instead("text.txt", put)), "text.txt")
    for damage, data in {
        "empty": b"",
        "blank": b"\n\n",
        "not UTF-8": b"a\ncaf\xe9\n",
        "UTF-16": "a\n".encode("utf-16"),
    }.items():
        yield case(
            f"data is {damage}", both(remove("corpus"), write("text.txt", data)), "text.txt", leaves=("corpus/*",)
        )


def others(folder: Path) -> None:
    (folder / "corpus").mkdir()
    (folder / "corpus" / "thesis.tex").write_text("x")
