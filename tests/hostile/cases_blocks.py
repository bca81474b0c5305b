"""Folders of embeddings that are damaged, of another command, or of an input that changed."""

import json
from collections.abc import Iterator
from pathlib import Path

from hostile.case import DONE, EITHER, REFUSED, Case
from hostile.damages import PLACES, Make, as_earlier, both, copy, cut, instead, remove, write
from hostile.json_damages import WHOLE
from hostile.seeds import BLOCKS, PREPARE

KIND = "folders of embeddings"
FOLDER = "blocks"
PLAN, ROWS, MANIFEST = (f"{FOLDER}/.{name}.json" for name in ("plan", "rows-00000", "embeddings"))
FIRST, SECOND = (f"{FOLDER}/embeddings-00000-0000{number}.parquet" for number in range(2))
INPUTS = ("model", "roberta", "text.txt", FOLDER)
unfinished = both(remove(MANIFEST), remove(SECOND))


def case(damage: str, make: Make, names: str, *more: str, end: str = REFUSED, leaves: tuple = ()) -> Case:
    return Case(KIND, "encode", damage, [*BLOCKS, *more], INPUTS, make, end, names, leaves=leaves)


def nothing(folder: Path) -> None:
    """No damage: the arguments are wrong."""


def other_count(folder: Path) -> None:
    """Numbers of rows that no file has."""
    content = json.loads((folder / ROWS).read_text())
    (folder / ROWS).write_text(json.dumps(content | {"rows": 7}))


def cases() -> Iterator[Case]:
    for name in (PLAN, ROWS, MANIFEST):
        for damage, change in WHOLE.items():
            data = lambda folder, name=name, change=change: write(name, change((folder / name).read_bytes()))(folder)  # noqa: E731
            yield case(f"{Path(name).name} is {damage}", data, Path(name).name, end=EITHER)
    yield case("another number of rows", both(unfinished, other_count), "rows-00000.json")
    for option in ("block-rows=5", "max-length=8", "pooler=avg", "output-dtype=float16", "model=roberta", "prompt=a"):
        yield case(f"another --{option} into one folder", nothing, option.split("=")[0], f"--{option}")
    yield Case(KIND, "encode", "without --keep-text", BLOCKS[:-1], INPUTS, nothing, REFUSED, "--keep-text")
    yield case("an input that was changed", write("text.txt", "a cat\na dog\n"), "other embeddings")
    yield case("an input that is missing", remove("text.txt"), "text.txt")
    yield case("no file of a pattern", nothing, "no file matches", "--data=*.jsonl")
    yield case("an input twice", nothing, "named twice", "--data=text.txt,text.txt")
    yield case("into a folder with other files", both(remove(FOLDER), others), "other files")
    yield case("into the folder of the input", nothing, "", "--output=model/")
    for share in (0, 0.3, 0.99):
        yield case(f"a block cut to {share:.0%}", both(remove(MANIFEST), cut(FIRST, share)), FIRST)
        yield case(f"a block cut to {share:.0%} in a complete folder", cut(FIRST, share), FIRST)
    for name, folder, command, arguments in (
        ("a corpus's folder", "corpus", "encode", BLOCKS),
        ("a folder of embeddings", FOLDER, "prepare", PREPARE),
    ):
        inputs = ("model", "text.txt", folder)
        there = [*arguments, f"--output={folder}/"]
        yield Case(KIND, command, f"into {name}", there, inputs, nothing, REFUSED, "choose another folder")
    yield case("the blocks of one file under the names of another", both(remove(MANIFEST), swap), FIRST)
    for damage, put in PLACES.items():
        yield case(f"a block that is {damage}", both(remove(MANIFEST), instead(FIRST, put)), "", end=EITHER)
    yield case("complete", nothing, "", end=DONE)
    yield case("unfinished", unfinished, "", end=DONE)
    yield case("--output=gs://bucket/emb.npy", nothing, "name a folder", "--output=gs://bucket/emb.npy")
    for name in ("gs://", "gs:///x", "s3://bucket/blocks", "gs://no such bucket/blocks"):
        yield case(f"--output={name}", nothing, name, f"--output={name}")
        yield case(f"--data={name}", nothing, name, f"--data={name}")
    for option in ("hosts=2", "address=auto", "parts=2", "part=0", "save-every=5"):
        yield case(f"--{option}", nothing, f"--{option.split('=')[0]}", f"--{option}")
    build = ["build", f"--embeddings={FOLDER}", "--output=out.lance"]
    yield Case(KIND, "search", "an index of an unfinished folder", build, INPUTS, unfinished, REFUSED, MANIFEST)
    earlier = as_earlier(FOLDER)
    yield case("an earlier version's, complete", earlier, "", end=DONE)
    yield case("an earlier version's, unfinished", both(unfinished, earlier), "", end=DONE)
    of_earlier = {
        "without the plan": (both(remove(PLAN), earlier), "other files", ""),
        "unfinished": (both(unfinished, earlier), "", f"{FOLDER}/embeddings.json"),
        "without a block": (both(remove(SECOND), earlier), "", SECOND),
        "and a later one's": (both(copy(PLAN), copy(MANIFEST)), f"{FOLDER}: has .plan.json and plan.json", FOLDER),
    }
    for name in (PLAN, ROWS, MANIFEST):
        whose, shown = f"whose {Path(name).name[1:]} is cut", str(Path(name).with_name(Path(name).name[1:]))
        of_earlier[whose] = both(cut(name, 0.5), earlier), shown, shown if name == MANIFEST else ""
    for what, (make, message, in_search) in of_earlier.items():
        if message:
            yield case(f"an earlier version's, {what}", make, message)
        if in_search:
            damage = f"an index of an earlier version's folder, {what}"
            yield Case(KIND, "search", damage, build, INPUTS, make, REFUSED, in_search)
    copied = both(remove(PLAN), earlier)  # it is complete by its list
    yield Case(KIND, "search", "an index of an earlier version's folder", build, INPUTS, copied, DONE)


def swap(folder: Path) -> None:
    """Two blocks of as many rows change their names."""
    (folder / FIRST).rename(folder / "kept")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "kept").rename(folder / SECOND)


def others(folder: Path) -> None:
    (folder / FOLDER).mkdir()
    (folder / FOLDER / "thesis.tex").write_text("x")
