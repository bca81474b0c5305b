"""Folders with the files that macOS puts beside others: they are ignored, so a command does what it does without."""

from collections.abc import Iterator
from pathlib import Path

from hostile.case import DONE, PAIRS, SAME, TEXT, Case
from hostile.cases_building import NLI
from hostile.cases_json import ENCODE_RUN, EXPORT, INDEX, RESUME, STATE, readers_of_model
from hostile.cases_lance import BUILD, SEARCH
from hostile.damages import Make, both, write
from hostile.seeds import BLOCKS, PREPARE, train_arguments

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


SEARCHED = ["--model=model", f"--data={TEXT}", "--index=index", "--query=a cat", "--output=out.json"]
FROM_CORPUS = train_arguments("run", data__train="corpus")
RETRIEVAL = ["--model=model", "--tasks=retrieval:beir", "--output=out.json"]
READ = {
    "a model's folder": readers_of_model()[0],
    "a model of sentence-transformers": readers_of_model("foreign")[0],
    "a run that is encoded with": ENCODE_RUN,
    "a run that is exported": EXPORT,
    "a run that goes on": RESUME,
    "an index": INDEX,
    "an unfinished encoding": STATE,
}


def cases() -> Iterator[Case]:
    def case(damage: str, command: str, arguments: list[str], inputs: tuple[str, ...], output: str) -> Case:
        return Case(KIND, command, damage, arguments, inputs, litter, SAME, output=output)

    for damage, reader in READ.items():
        yield Case(
            KIND,
            reader.command,
            damage,
            reader.arguments,
            reader.inputs,
            litter,
            DONE if reader in (EXPORT, RESUME) else SAME,
            output=reader.output if reader is not RESUME else "",
            leaves=reader.leaves,
        )
    yield case("an index on disk", "search", SEARCH, ("model", "lance"), "out.json")
    yield case("an index that is made again", "search", SEARCHED, ("model", TEXT, "index"), "out.json")
    yield case("BEIR's folder", "evaluate", RETRIEVAL, ("model", "beir"), "out.json")
    yield Case(KIND, "train", "a prepared corpus", FROM_CORPUS, ("model", "corpus", PAIRS), litter, DONE)
    yield Case(KIND, "search", "a folder of embeddings", BUILD, ("embeddings",), litter, DONE)
    nli = both(lambda folder: (folder / "x").mkdir(), write("x/snli_1.0_train.jsonl", NLI), litter)
    yield Case(
        KIND, "build-data", "a download", ["nli", "--source=x", "--output=out.csv"], (), nli, DONE, "", "out.csv"
    )
    made = {
        "index": ("search", SEARCHED, ("model", TEXT)),
        "lance": ("search", BUILD, ("embeddings",)),
        "blocks": ("encode", BLOCKS, ("model", TEXT)),
        "corpus": ("prepare", PREPARE, ("model", TEXT)),
        "out": ("export", EXPORT.arguments, ("workdir",)),
        "run/model": ("train", train_arguments("run"), ("model", TEXT, PAIRS)),
    }
    for output, (command, arguments, inputs) in made.items():
        yield Case(
            KIND,
            command,
            f"the output {output}",
            arguments,
            inputs,
            shown(output),
            DONE,
            leaves=(f"{output}/.DS_Store",),
        )
