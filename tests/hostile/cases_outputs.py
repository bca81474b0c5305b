"""Outputs: places that must not be written, or only in a certain way; and streams that take nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hostile.case import DONE, EITHER, KEPT, PAIRS, REFUSED, TEXT, Case
from hostile.damages import Make, both, device, write
from hostile.seeds import SENTENCES


class Writer(NamedTuple):
    """A command, and its output: a file, or else a folder."""

    command: str
    arguments: list[str]
    inputs: tuple[str, ...]
    output: str
    source: str  # an input that is no folder

    @property
    def is_file(self) -> bool:
        return "." in self.output

    def to(self, output: str) -> list[str]:
        """The command line with another output."""
        return [argument.replace(f"={self.output}", f"={output}") for argument in self.arguments]


WRITERS = [
    Writer("encode", ["--model=model", f"--data={TEXT}", "--output=out.npy"], ("model", TEXT), "out.npy", TEXT),
    Writer("evaluate", ["--model=model", f"--data={PAIRS}", "--output=out.json"], ("model", PAIRS), "out.json", PAIRS),
    Writer(
        "search",
        ["--model=model", f"--data={TEXT}", "--query=a", "--output=out.json"],
        ("model", TEXT),
        "out.json",
        TEXT,
    ),
    Writer("search", ["--model=model", f"--data={TEXT}", "--query=a", "--index=out"], ("model", TEXT), "out", TEXT),
    Writer("geometry", ["--models=model", f"--data={PAIRS}", "--output=out"], ("model", PAIRS), "out", PAIRS),
    Writer("analyze", ["--runs", "workdir", "--output=out"], ("workdir",), "out", "workdir/run.json"),
    Writer("export", ["--workdir=workdir", "--output=out"], ("workdir",), "out", "workdir/run.json"),
]


def link(name: str, target: str) -> Make:
    return lambda folder: (folder / name).symlink_to(target)


def made(name: str, mode: int) -> Make:
    """A folder with other rights."""

    def make(folder: Path) -> None:
        (folder / name).mkdir()
        (folder / name).chmod(mode)

    return make


def read_only(name: str) -> Make:
    return both(write(name, "earlier"), lambda folder: (folder / name).chmod(0o444))


def cases() -> Iterator[Case]:
    for writer in WRITERS:
        yield from places(writer)
        yield from names(writer)
        if writer.is_file:
            yield from special_files(writer)
    for writer in WRITERS[:3]:
        yield from inputs(writer)
    yield from streams()


def case(writer: Writer, damage: str, target: str, make: Make | None, end: str, **more: object) -> Case:
    kind = Path(writer.output).suffix or "a folder"
    arguments = writer.to(target)
    text = f"{kind}{' of an index' if '--index' in writer.arguments[-1] else ''}: {damage}"
    return Case("outputs", writer.command, text, arguments, writer.inputs, make, end, **more)  # type: ignore[arg-type]


def places(writer: Writer) -> Iterator[Case]:
    """Of files and folders alike."""
    suffix = Path(writer.output).suffix
    name = writer.output
    yield case(writer, "in a file", f"{writer.source}/{name}", None, REFUSED)
    yield case(writer, "in /proc", f"/proc/{name}", None, REFUSED)
    yield case(writer, "in /sys", f"/sys/{name}", None, REFUSED)
    yield case(writer, "through a link to itself", f"loop{suffix}", link(f"loop{suffix}", f"loop{suffix}"), REFUSED)
    yield case(
        writer, "in a folder that is read only", f"kept/{name}", made("kept", 0o555), REFUSED, options={"drop": True}
    )
    yield case(
        writer,
        "in a folder that cannot be entered",
        f"kept/{name}",
        made("kept", 0o000),
        REFUSED,
        options={"drop": True},
    )
    if writer.is_file:
        yield case(writer, "is a folder", f"kept{suffix}", made(f"kept{suffix}", 0o755), REFUSED)
        yield case(
            writer,
            "is a link to a folder",
            f"l{suffix}",
            both(made("kept", 0o755), link(f"l{suffix}", "kept")),
            REFUSED,
        )
        yield case(writer, "in a new folder", f"new/one/{name}", None, DONE, output=f"new/one/{name}")
        yield case(writer, "in a bucket of another store", f"s3://bucket/{name}", None, REFUSED)
        yield case(
            writer, "of another kind", "out.exe", None, EITHER, output="out.exe" if writer.command != "encode" else ""
        )
    else:
        yield case(writer, "is a file", writer.source, None, REFUSED)
        yield case(writer, "is a device", "device", lambda folder: device(7)(folder / "device"), REFUSED)
        yield case(writer, "is a pipe", "pipe", lambda folder: os.mkfifo(folder / "pipe"), REFUSED)
        if "--index" in writer.arguments[-1] or writer.command == "export":
            full = both(made("kept", 0o755), write("kept/precious.txt", "do not lose me"))
            yield case(writer, "has another program's files", "kept", full, REFUSED)
            yield case(writer, "is the input's folder", writer.inputs[0], None, REFUSED)
            yield case(writer, "is the current folder", ".", None, REFUSED)


def names(writer: Writer) -> Iterator[Case]:
    suffix = Path(writer.output).suffix
    for length in (243, 249, 255, 256):
        name = "n" * (length - len(suffix)) + suffix
        yield case(
            writer, f"a name of {length} characters", name, None, REFUSED if length > 255 else EITHER, output=name
        )
    if writer.command in ("analyze", "geometry"):  # slow, and as the others
        return
    odd = {
        "not UTF-8": "caf\udce9",
        "a line break": "a\nb",
        "a blank": " ",
        "a percent sign": "%s{0}",
        "a dash": "./-o",
        "empty": "",
    }
    for text, name in odd.items():
        if name or suffix:
            yield case(writer, f"a name: {text}", name + suffix, None, EITHER, output=name + suffix)
    yield case(writer, "an empty name", "", None, EITHER)


def special_files(writer: Writer) -> Iterator[Case]:
    suffix = Path(writer.output).suffix
    earlier = write(f"real{suffix}", "earlier")
    name = f"l{suffix}"
    yield case(
        writer,
        "a link to a file",
        name,
        both(earlier, link(name, f"real{suffix}")),
        EITHER,
        output=name,
        leaves=(f"real{suffix}",),
    )
    yield case(
        writer, "a link to nothing", name, link(name, f"new{suffix}"), EITHER, output=f"new{suffix}", leaves=(name,)
    )
    yield case(writer, "a pipe without a reader", name, lambda folder: os.mkfifo(folder / name), EITHER)
    yield case(writer, "a file that is read only", name, read_only(name), REFUSED, options={"drop": True})
    for text, minor in (("that takes all", 3), ("that is full", 7)):
        yield case(writer, f"a device {text}", name, lambda folder, minor=minor: device(minor)(folder / name), EITHER)


def inputs(writer: Writer) -> Iterator[Case]:
    """The output is one of the inputs."""
    suffix = Path(writer.output).suffix
    source, x = writer.source, f"x{suffix}"
    yield case(writer, "is the input", source, None, REFUSED)
    yield case(writer, "is the input by another path", f"../{{folder}}/{source}", None, REFUSED)
    yield case(writer, "is a link to the input", x, link(x, source), REFUSED)
    yield case(writer, "is the input's hard link", x, lambda folder: os.link(folder / source, folder / x), REFUSED)
    yield case(writer, "is the model's weights", "model/model.safetensors", None, REFUSED)
    yield case(writer, "is the model's config", "model/config.json", None, REFUSED)
    yield case(writer, "is a link to the model's weights", x, link(x, "model/model.safetensors"), REFUSED)
    yield case(writer, "is a link to the model's tokenizer", x, link(x, "model/tokenizer.json"), REFUSED)


ODD = write(TEXT, "\n".join([*SENTENCES, "Zürich 東京 🐱 é", "café \u2028 x"]) + "\n")


def streams() -> Iterator[Case]:
    """Standard output is full, closed, or of another encoding: what is asked for in files is there nevertheless."""
    for writer in (*WRITERS[:3], *WRITERS[4:]):
        kept = {"output": writer.output, "leaves": (f"{writer.output}*",)}
        end = KEPT if writer.command != "analyze" else EITHER
        yield case(
            writer, "with a full standard output", writer.output, None, end, options={"stdout": "/dev/full"}, **kept
        )
        yield case(writer, "with a closed standard output", writer.output, None, end, options={"stdout": ""}, **kept)
        yield case(writer, "with ASCII streams", writer.output, None, end, options={"encoding": "ascii"}, **kept)
    for writer in WRITERS[:4]:
        make = ODD if writer.source == TEXT else None
        yield case(
            writer,
            "text beyond ASCII, ASCII streams",
            writer.output,
            make,
            EITHER,
            options={"encoding": "ascii"},
            output=writer.output,
            leaves=(f"{writer.output}*",),
        )
    for command in ("train", "sweep", "aot", "demo", "runs", "overlap", "__main__"):
        for text, options in (("full", {"stdout": "/dev/full"}), ("closed", {"stdout": ""})):
            yield Case(
                "outputs", command, f"the help to a {text} standard output", ["--help"], (), end=EITHER, options=options
            )
