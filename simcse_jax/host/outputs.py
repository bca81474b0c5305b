"""Checks of outputs before a command's work: each can be written, and none replaces an input."""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from simcse_jax.errors import UserError
from simcse_jax.host.names import package_root, split_glove, split_step
from simcse_jax.host.storage import is_remote, is_stdout, local_path, writing

Inputs: TypeAlias = Mapping[str, str | Path | None]  # what a command reads, by option; names need not be local paths

WRITTEN = (".json", ".html", ".png", ".svg", ".md", ".csv", ".npy", ".parquet")  # by us, also next to a model
OWN = ("run.json", "index.json", ".lock")  # in a folder within a model's that is not a part of it: a run, an index
# Files with these names in the folders of data, models, runs and indexes are read.
READ = (
    *("*config*.json", "tokenizer*.json", "vocab*.json", "*_map.json", "added_tokens.json", "modules.json"),
    *(
        "*.index.json",
        "simcse_jax*.json",
        "run.json",
        "result.json",
        "folds.json",
        "examples.json",
        "index.json",
        "sts-*.csv",
    ),
)


def output_file(
    name: str,
    inputs: Inputs | None = None,
    *,
    kinds: Sequence[str] = (".json",),
    streamed: bool = True,
    option: str = "--output",
) -> Path:
    """The file of an option; of a link, what it points to. Its folder need not exist: whoever writes it makes it.

    Args:
      name: of the file.
      inputs: what the command reads.
      kinds: the endings that the name may have.
      streamed: whether it may be /dev/stdout.
      option: for messages.
    """
    where = f"{option} {name}"
    if is_remote(name):
        raise UserError(f"{where}: must be a file on a disk")
    path = local_path(name)
    if streamed and is_stdout(path):
        return path
    check_inputs([path], inputs, where)
    if (path.exists() and not path.is_file()) or path.suffix.lower() not in kinds:
        raise UserError(f"{where}: must be a file that ends in {' or '.join(kinds)}")
    path = _followed(path)
    _check_replaced(path, where)
    _check_folder(path.absolute().parent, where)
    return path


def output_folder(
    name: str, inputs: Inputs | None = None, *, files: Iterable[str] = (), option: str = "--output"
) -> Path:
    """The folder of an option, which need not exist yet; it is not created.

    Args:
      name: of the folder.
      inputs: what the command reads.
      files: the names of the files that the command writes there, as patterns.
      option: for messages.
    """
    where = f"{option} {name}"
    if is_remote(name):
        raise UserError(f"{where}: must be a folder on a disk")
    folder = _followed(local_path(name))
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{where}: is a file; it must be a folder (a new one is created)")
    for input_option, source in _local(inputs):
        if source.is_dir() and os.path.realpath(folder) == os.path.realpath(source):
            raise UserError(f"{where}: is the folder of {input_option}; choose another")
    existing = [path for pattern in files for path in folder.glob(pattern)]
    for path in existing:
        _check_replaced(path, f"{where}: {path.name}")
    check_inputs(existing, inputs, where)
    _check_folder(folder, where)
    return folder


def check_replaced_folder(folder: Path, source: Path | None, parts: Sequence[str] = ()) -> None:
    """Checks the folder of `--output` where it is replaced as a whole.

    Args:
      folder: to check.
      source: the folder that the command reads, if it is on a disk.
      parts: folders in `source` that nothing may be written to.
    """
    where, real = f"--output {folder}", Path(os.path.realpath(folder))
    if real.is_symlink():
        raise UserError(f"{where}: is a link to itself; choose another")
    if source is not None:
        other = Path(os.path.realpath(source))
        if other.is_relative_to(real) or any(real.is_relative_to(other / part) for part in parts):
            raise UserError(f"{where}: would take the place of {source} or a part of it; choose another folder")
    _check_folder(real.parent, where)


def check_inputs(outputs: Iterable[Path], inputs: Inputs | None, where: str) -> None:
    """Refuses files that would take the place of an input.

    Args:
      outputs: the files that are written, or removed.
      inputs: what the command reads.
      where: how the message begins: the option and its value.
    """
    outputs = list(outputs)
    for option, source in _local(inputs):
        for output in outputs:
            with writing(where):
                if takes_place_of(output, source):
                    article = "a file of" if source.is_dir() else "the file of"
                    raise UserError(f"{where}: {output} is {article} {option}, which would be lost; choose another")


def takes_place_of(output: Path, source: Path) -> bool:
    """Whether a file written to `output` takes the place of `source` or, of a folder, of a file that is read there."""
    if os.path.realpath(output) == os.path.realpath(source):
        return True
    if not output.exists() or not source.exists():
        return False
    if not source.is_dir():
        return output.samefile(source)
    real, folder = Path(os.path.realpath(output)), Path(os.path.realpath(source))
    within = list(itertools.takewhile(lambda parent: parent != folder, real.parents))
    if len(within) == len(real.parents) or any((parent / name).exists() for parent in within for name in OWN):
        return False
    return real.suffix.lower() not in WRITTEN or any(fnmatch(real.name, pattern) for pattern in READ)


@contextlib.contextmanager
def printing(results_are_written: bool) -> Iterator[Callable[[str], None]]:
    """Prints at once. If results are written, a failure to print ends the command only after the block.

    Raises:
      OSError: of the first line that could not be printed.
    """
    failed: list[OSError] = []

    def say(text: str) -> None:
        try:
            if not failed:
                print(text, flush=True)
        except OSError as error:
            if not results_are_written:
                raise
            failed.append(error)

    yield say
    if failed:
        raise failed[0]


def _followed(path: Path) -> Path:
    """The target of a link; other paths as they are."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _check_replaced(path: Path, where: str) -> None:
    if path.is_file() and not os.access(path, os.W_OK):
        raise UserError(f"{where}: may not be written; change its mode or choose another")


def _check_folder(folder: Path, where: str) -> None:
    """Makes and removes a file in the folder, or in the nearest one above it that exists: modes say nothing to root."""
    nearest = folder.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    with writing(where), tempfile.TemporaryFile(dir=nearest):
        pass


def _local(inputs: Inputs | None) -> list[tuple[str, Path]]:
    """The inputs that have a path, which need not exist: a hub model's name is also one."""
    names = {option: split_step(str(name)).name for option, name in (inputs or {}).items() if name}
    return [(option, _place(name)) for option, name in names.items() if not is_remote(name)]


def _place(name: str) -> Path:
    if (glove := split_glove(name)) is not None:
        return glove.file
    return package_root(name) or local_path(name)
