"""Folders with the files that macOS puts beside others: they are ignored, so a command does what it does without."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from hostile.case import DONE, PAIRS, SAME, TEXT, Case, Reader
from hostile.cases_lance import BUILD, SEARCH
from hostile.cases_sources import NLI
from hostile.damages import Make, both, write
from hostile.readers import ENCODE_RUN, EXPORT, INDEX, RESUME, STATE, readers_of_model
from hostile.seeds import BLOCKS, train_arguments

KIND = "files of macOS"
APPLE_DOUBLE = bytes.fromhex("00051607 00020000") + b"Mac OS X        \0\2\0\0\0\t\0\0\0\x32\0\0\0\xb0"
SHOWN = b"\0\0\0\1Bud1\0\0\x10\0"  # the first bytes of a .DS_Store


def litter(folder: Path) -> None:
    """Puts such a file beside each file, and one into each folder."""
    for path in [folder, *sorted(folder.rglob("*"))]:
        if path.is_dir():
            (path / ".DS_Store").write_bytes(SHOWN)
        else:
            path.with_name(f"._{path.name}").write_bytes(APPLE_DOUBLE)


def shown(name: str) -> Make:
    """A folder that has been looked at, and has nothing else."""

    def make(folder: Path) -> None:
        (folder / name).mkdir(parents=True)
        (folder / name / ".DS_Store").write_bytes(SHOWN)

    return make


RETRIEVAL = ["--model=model", "--tasks=retrieval:beir", "--output=out.json"]
SAME_RESULT = {"a model's folder": readers_of_model()[0]}
SAME_RESULT |= {"a model of sentence-transformers": readers_of_model("foreign")[0]}
SAME_RESULT |= {"a run that is encoded with": ENCODE_RUN, "an index": INDEX, "an unfinished encoding": STATE}
SAME_RESULT |= {"an index on disk": Reader("search", SEARCH, ["model", "lance"], "out.json")}
SAME_RESULT |= {"BEIR's folder": Reader("evaluate", RETRIEVAL, ["model", "beir"], "out.json")}
DONE_AS_WELL = {
    "a run that is exported": EXPORT,
    "a run that goes on": RESUME._replace(output=""),
    "a prepared corpus": Reader("train", train_arguments("run", data__train="corpus"), ["model", "corpus", PAIRS]),
    "a folder of embeddings": Reader("search", BUILD, ["embeddings"]),
}
MADE = {"lance": Reader("search", BUILD, ["embeddings"]), "blocks": Reader("encode", BLOCKS, ["model", TEXT])}
MADE |= {"out": EXPORT, "run/model": Reader("train", train_arguments("run"), ["model", TEXT, PAIRS])}


def cases() -> Iterator[Case]:
    for damage, reader in SAME_RESULT.items():
        yield reader.case(KIND, damage, litter, SAME)
    for damage, reader in DONE_AS_WELL.items():
        yield reader.case(KIND, damage, litter, DONE)
    build_data = Reader("build-data", ["nli", "--source=x", "--output=out.csv"], [], "out.csv")
    nli = both(lambda folder: (folder / "x").mkdir(), write("x/snli_1.0_train.jsonl", NLI), litter)
    yield build_data.case(KIND, "a download", nli, DONE)
    for output, reader in MADE.items():
        made = reader.case(KIND, f"the output {output}", shown(output), DONE)
        yield dataclasses.replace(made, output="", leaves=(f"{output}/.DS_Store",))
