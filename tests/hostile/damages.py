"""Damages of files of any kind, and of places in a folder."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

Make = Callable[[Path], object]


def write(name: str, data: bytes | str) -> Make:
    """Writes a file of the case's folder."""
    content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return lambda folder: (folder / name).write_bytes(content)


def change(name: str, changed: Callable[[bytes], bytes]) -> Make:
    """Changes the bytes of a file."""
    return lambda folder: (folder / name).write_bytes(changed((folder / name).read_bytes()))


def flip(name: str, seed: int, count: int = 3) -> Make:
    """Changes a few bytes of a file, by a seed."""

    def changed(whole: bytes) -> bytes:
        data, draw = bytearray(whole), random.Random(seed)
        for _ in range(count):
            data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
        return bytes(data)

    return change(name, changed)


def cut(name: str, share: float) -> Make:
    """Keeps the first part of a file."""
    return change(name, lambda data: data[: int(len(data) * share)])


def remove(name: str) -> Make:
    """Removes a file or folder."""

    def make(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    return make


def change_tensors(name: str, change: Callable[[dict[str, np.ndarray]], object]) -> Make:
    """Writes the tensors of a safetensors file again, after a change."""

    def make(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        found = load_file(folder / name)
        change(found)
        save_file(found, folder / name, metadata={"format": "pt"})

    return make


def swap(one: str, other: str) -> Make:
    """Two files change their names."""

    def make(folder: Path) -> None:
        (folder / one).rename(folder / "kept")
        (folder / other).rename(folder / one)
        (folder / "kept").rename(folder / other)

    return make


def both(*makes: Make) -> Make:
    """One after the other."""

    def make(folder: Path) -> None:
        for one in makes:
            one(folder)

    return make


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


# What can be where a file is looked for.
PLACES: dict[str, Callable[[Path], object]] = {"a folder": lambda path: path.mkdir()}
PLACES |= {"a pipe without a writer": os.mkfifo, "a link to nothing": lambda path: path.symlink_to("none-such")}
PLACES |= {"a link to itself": lambda path: path.symlink_to(path.name)}
PLACES |= {"a link to a folder": lambda path: path.symlink_to("."), "endless zeros": device(5)}
PLACES |= {"an empty device": device(3), "missing": lambda path: None}


def each(pattern: str, damage: Callable[..., Make], *more: object) -> Make:
    """Damages all files of a pattern."""

    def make(folder: Path) -> None:
        for path in sorted(folder.glob(pattern)):
            damage(str(path.relative_to(folder)), *more)(folder)

    return make


def unreadable(name: str) -> Make:
    """A file or folder without any rights; the case must drop root's."""
    return lambda folder: (folder / name).chmod(0)
