"""Damages of files of any kind, and of places in a folder."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from support import earlier

Make = Callable[[Path], object]


def write(name: str, data: bytes | str) -> Make:
    """Writes a file of the case's folder."""
    content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return lambda folder: (folder / name).write_bytes(content)


def flip(name: str, seed: int, count: int = 3) -> Make:
    """Changes a few bytes of a file, by a seed."""

    def make(folder: Path) -> None:
        data, draw = bytearray((folder / name).read_bytes()), random.Random(seed)
        for _ in range(count):
            data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
        (folder / name).write_bytes(data)

    return make


def cut(name: str, share: float) -> Make:
    """Keeps the first part of a file."""

    def make(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * share)])

    return make


def remove(name: str) -> Make:
    """Removes a file or folder."""

    def make(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    return make


def both(*makes: Make) -> Make:
    """One after the other."""

    def make(folder: Path) -> None:
        for one in makes:
            one(folder)

    return make


def as_earlier(name: str) -> Make:
    """What is not data in a folder gets its names of earlier versions, without a dot."""
    return lambda folder: earlier.as_earlier(folder / name)


def copy(name: str) -> Make:
    """A file is there under its name of earlier versions, without a dot, too."""
    return lambda folder: shutil.copy2(folder / name, (folder / name).with_name(Path(name).name[1:]))


def instead(name: str, put: Callable[[Path], object]) -> Make:
    """Something else where the file or folder was."""

    def make(folder: Path) -> None:
        if (folder / name).exists():
            remove(name)(folder)
        put(folder / name)

    return make


DEVICES = {3: "/dev/null", 5: "/dev/zero", 7: "/dev/full"}


def device(minor: int) -> Callable[[Path], object]:
    """A device node of the case's own; only root can make one, and only root needs one, lest the real one suffers."""

    def make(path: Path) -> None:
        if os.getuid() == 0:
            os.mknod(path, 0o20666, os.makedev(1, minor))
        else:
            path.symlink_to(DEVICES[minor])

    return make


PLACES: dict[str, Callable[[Path], object]] = {  # what can be where a file is looked for
    "a folder": lambda path: path.mkdir(),
    "a pipe without a writer": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("none-such"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a folder": lambda path: path.symlink_to("."),
    "endless zeros": device(5),
    "an empty device": device(3),
    "missing": lambda path: None,
}


def unreadable(name: str) -> Make:
    """A file or folder without any rights; the case must drop root's."""
    return lambda folder: (folder / name).chmod(0)
