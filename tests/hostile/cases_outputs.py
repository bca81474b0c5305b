"""Outputs: places that must not be written, or only in a certain way; and streams that take nothing."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostile.case import DONE, EITHER, KEPT, PAIRS, REFUSED, TEXT, Case, Reader
from hostile.damages import Make, both, device, write
from hostile.seeds import SENTENCES

KIND = "outputs"


SEARCH, GRADED = ["--model=model", f"--data={TEXT}", "--query=a"], f"--data={PAIRS}"
FILES = [
    Reader("encode", [*SEARCH[:2], "--output=out.npy"], ["model", TEXT], "out.npy"),
    Reader("evaluate", ["--model=model", GRADED, "--output=out.json"], ["model", PAIRS], "out.json"),
    Reader("search", [*SEARCH, "--output=out.json"], ["model", TEXT], "out.json"),
]
INDEX = Reader("search", [*SEARCH, "--index=out"], ["model", TEXT], "out")
EXPORT = Reader("export", ["--workdir=workdir", "--output=out"], ["workdir"], "out")
PICTURES = [  # slow
    Reader("geometry", ["--models=model", GRADED, "--output=out"], ["model", PAIRS], "out"),
    Reader("analyze", ["--runs", "workdir", "--output=out"], ["workdir"], "out"),
]
FOLDERS = [INDEX, EXPORT, *PICTURES]


def source_of(writer: Reader) -> str:
    """An input that is a file."""
    return writer.inputs[-1] if "." in writer.inputs[-1] else "workdir/run.json"


def suffix_of(writer: Reader) -> str:
    return Path(writer.output).suffix


def link(name: str, target: str) -> Make:
    return lambda folder: (folder / name).symlink_to(target)


def made(name: str, mode: int = 0o755) -> Make:
    """A folder with these rights."""

    def make(folder: Path) -> None:
        (folder / name).mkdir()
        (folder / name).chmod(mode)

    return make


def case(
    writer: Reader, damage: str, output: str, make: Make | None = None, end: str = REFUSED, written="", **more: Any
) -> Case:
    """Another output than usual."""
    kind = (suffix_of(writer) or "a folder") + " of an index" * (writer is INDEX)
    line = [argument.replace(f"={writer.output}", f"={output}") for argument in writer.arguments]
    found = writer._replace(arguments=line, output=written, leaves=more.pop("leaves", ()))
    return found.case(KIND, f"{kind}: {damage}", make, end, **more)


def cases() -> Iterator[Case]:
    """Files are checked by one function and folders by another: what they have in common goes to writers in turn."""
    for writers in (FILES, FOLDERS):
        turns = itertools.cycle(writers)
        for writer in itertools.islice(turns, 2):
            yield from of_both(writer)
        for length, writer in itertools.product((243, 249, 255, 256), itertools.islice(turns, 2)):
            name = "n" * (length - len(suffix_of(writer))) + suffix_of(writer)
            end = REFUSED if length > 255 else EITHER
            yield case(writer, f"a name of {length} characters", name, None, end, name)
    for writer in FILES:
        yield from of_a_file(writer)
        yield from in_place_of_inputs(writer)
    for writer in FOLDERS:
        yield from of_a_folder(writer)
    odd = {"not UTF-8": "caf\udce9", "a line break": "a\nb", "a percent sign": "%s{0}", "a dash": "./-o"}
    for writer in (*FILES, INDEX, EXPORT):
        for text, name in odd.items():
            name += suffix_of(writer)
            yield case(writer, f"a name: {text}", name, None, EITHER, name)
        yield case(writer, "an empty name", "", None, EITHER)
    yield from streams()


def of_both(writer: Reader) -> Iterator[Case]:
    name, loop = writer.output, f"loop{suffix_of(writer)}"
    yield case(writer, "in a file", f"{source_of(writer)}/{name}")
    yield case(writer, "in /proc", f"/proc/{name}")
    yield case(writer, "in /sys", f"/sys/{name}")
    yield case(writer, "through a link to itself", loop, link(loop, loop))
    yield case(writer, "in a folder that is read only", f"kept/{name}", made("kept", 0o555), drop=True)
    yield case(writer, "in a folder that cannot be entered", f"kept/{name}", made("kept", 0), drop=True)


def of_a_file(writer: Reader) -> Iterator[Case]:
    """Folders, links, devices and other programs' files where the output should be."""
    output = writer.output
    suffix = suffix_of(writer)
    name, real, new = f"l{suffix}", f"real{suffix}", f"new{suffix}"
    earlier = write(real, "earlier")
    yield case(writer, "is a folder", f"kept{suffix}", made(f"kept{suffix}"))
    yield case(writer, "is a link to a folder", name, both(made("kept"), link(name, "kept")))
    yield case(writer, "in a new folder", f"new/one/{output}", None, DONE, f"new/one/{output}")
    yield case(writer, "in a bucket of another store", f"s3://bucket/{output}")
    other = "out.exe" if writer.command != "encode" else ""
    yield case(writer, "of another kind", "out.exe", None, EITHER, other)
    yield case(writer, "a link to a file", name, both(earlier, link(name, real)), EITHER, name, leaves=(real,))
    yield case(writer, "a link to nothing", name, link(name, new), EITHER, new, leaves=(name,))
    yield case(writer, "a pipe without a reader", name, lambda folder: os.mkfifo(folder / name), EITHER)
    read_only = both(write(name, "earlier"), lambda folder: (folder / name).chmod(0o444))
    yield case(writer, "a file that is read only", name, read_only, drop=True)
    yield case(writer, "a device that takes all", name, lambda folder: device(3)(folder / name), EITHER)
    yield case(writer, "a device that is full", name, lambda folder: device(7)(folder / name), EITHER)


def of_a_folder(writer: Reader) -> Iterator[Case]:
    yield case(writer, "is a file", source_of(writer))
    yield case(writer, "is a device", "device", lambda folder: device(7)(folder / "device"))
    yield case(writer, "is a pipe", "pipe", lambda folder: os.mkfifo(folder / "pipe"))
    if writer in (INDEX, EXPORT):
        full = both(made("kept"), write("kept/precious.txt", "do not lose me"))
        yield case(writer, "has another program's files", "kept", full)
        yield case(writer, "is the input's folder", writer.inputs[0])
        yield case(writer, "is the current folder", ".")


def in_place_of_inputs(writer: Reader) -> Iterator[Case]:
    """The output is one of the inputs."""
    source, x = source_of(writer), f"x{suffix_of(writer)}"
    yield case(writer, "is the input", source)
    yield case(writer, "is the input by another path", f"../{{folder}}/{source}")
    yield case(writer, "is a link to the input", x, link(x, source))
    yield case(writer, "is the input's hard link", x, lambda folder: os.link(folder / source, folder / x))
    yield case(writer, "is the model's config", "model/config.json")
    yield case(writer, "is a link to the model's weights", x, link(x, "model/model.safetensors"))


ODD = write(TEXT, "\n".join([*SENTENCES, "Zürich 東京 🐱 é", "café \u2028 x"]) + "\n")
STREAMS = {"with a full standard output": {"stdout": "/dev/full"}, "with a closed standard output": {"stdout": ""}}
STREAMS |= {"with ASCII streams": {"encoding": "ascii"}}


def streams() -> Iterator[Case]:
    """Standard output is full, closed, or of another encoding: what is asked for in files is there nevertheless."""
    for writer in (*FILES, EXPORT, *PICTURES):
        output = writer.output
        end = KEPT if writer.command != "analyze" else EITHER
        for damage, zygote in STREAMS.items():
            yield case(writer, damage, output, None, end, output, leaves=(f"{output}*",), **zygote)
    for writer in (*FILES, INDEX):
        output, make = writer.output, ODD if source_of(writer) == TEXT else None
        more = {"leaves": (f"{output}*",), "encoding": "ascii"}
        yield case(writer, "text beyond ASCII, ASCII streams", output, make, EITHER, output, **more)
    for command in ("train", "sweep", "aot", "demo", "runs", "overlap", "__main__"):
        for text, stdout in (("full", "/dev/full"), ("closed", "")):
            damage = f"the help to a {text} standard output"
            yield Reader(command, ["--help"]).case(KIND, damage, None, EITHER, stdout=stdout)
