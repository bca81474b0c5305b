"""Checks of outputs before a command's work: each can be written, and none replaces an input.

A file must be new or a regular one, which is then replaced as a whole. Where one text is written at the end, it may
also be a device or a pipe (`storage.write_atomically`).
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from simcse_jax.errors import UserError
from simcse_jax.host.names import package_root, split_glove, split_step
from simcse_jax.host.storage import is_remote, is_stream, local_path, own_descriptor, writing

Inputs: TypeAlias = Mapping[str, str | Path | None]  # what a command reads, by option; names need not be local paths

TEMPORARY = ".{}.tmp"  # the name that a file has while it is written, {} being its own; see `storage`
# Those of a file that is made in parts and resumed; see `hidden`.
RESUMED = (TEMPORARY, ".{}.partial", ".{}.state.json", "..{}.state.json.tmp")
WRITTEN = (".json", ".html", ".png", ".svg", ".md", ".csv", ".npy", ".parquet", ".partial", ".tmp")  # by us
# Files with these endings in the folders of data, models, runs and indexes; all others in them are what we wrote.
READ = (
    *("*config*.json", "tokenizer*.json", "vocab*.json", "*_map.json", "added_tokens.json", "modules.json"),
    *("*.index.json", "simcse_jax*.json", "run.json", "result.json", "index.json", "sts-*.csv"),
)
INDEX = "index.json"  # of an index, which also reads the arrays and sentences next to it
OWN = ("run.json", INDEX, ".lock")  # in a folder that has its own place, wherever it lies: a run, an index, a sweep


def output_file(
    name: str,
    inputs: Inputs | None = None,
    *,
    kinds: Sequence[str] = (".json",),
    temporary: Sequence[str] = (TEMPORARY,),
    streamed: bool = True,
    option: str = "--output",
) -> Path:
    """The file of an option; of a link, what it points to. Its folder need not exist: whoever writes it makes it.

    Args:
      kinds: the endings that the name may have.
      temporary: names of the files next to it while it is written, {} being its own.
      streamed: whether it may be a device or a pipe.
    """
    where = f"{option} {name}"
    if is_remote(name):
        raise UserError(f"{where}: must be a file on a disk")
    path = local_path(name)
    if path.is_dir():
        raise UserError(f"{where}: a folder; name a {' or '.join(kinds)} file in it")
    check_inputs([path], inputs, where)
    if is_stream(path):
        _check_stream(path, where, streamed)
        return path
    if path.suffix.lower() not in kinds:
        raise UserError(f"{where}: must end in {' or '.join(kinds)}")
    path = _followed(path, where)
    temporaries = [path.with_name(form.format(path.name)) for form in temporary]
    for other in temporaries:
        with writing(where):
            if (status := _status(other)) and not stat.S_ISREG(status.st_mode):
                raise UserError(f"{where}: needs the name {other}, which is not a file; remove that")
    _check_replaced(path, where)
    _check_folder(path.absolute().parent, where)
    check_inputs(temporaries, inputs, where)
    return path


def output_folder(
    name: str, inputs: Inputs | None = None, *, files: Iterable[str] = (), option: str = "--output", utf8: bool = False
) -> Path:
    """The folder of an option, which need not exist yet; it is not created.

    Args:
      files: the names of the files that the command writes there, as patterns.
      utf8: whether libraries write there that take no other paths.
    """
    where = f"{option} {name}"
    if is_remote(name):
        raise UserError(f"{where}: must be a folder on a disk")
    folder = _followed(local_path(name), where)
    if utf8:
        _check_utf8(folder, where)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{where}: is a file; it must be a folder (a new one is created)")
    for input_option, source in _local(inputs):
        if source.is_dir() and os.path.realpath(folder) == os.path.realpath(source):
            raise UserError(f"{where}: is the folder of {input_option}; choose another")
    existing = [path for pattern in files for path in folder.glob(pattern)]
    for path in existing:
        if path.is_dir():
            raise UserError(f"{where}: {path.name} in it is a folder; remove it or choose another --output")
        _check_replaced(path, f"{where}: {path.name}")
    check_inputs(existing, inputs, where)
    _check_folder(folder, where)
    return folder


def check_replaced_folder(folder: Path, source: Path | None, parts: Sequence[str] = ()) -> None:
    """Checks the folder of `--output` where it is replaced as a whole.

    Args:
      source: the folder that the command reads, if it is on a disk.
      parts: folders in `source` that nothing may be written to.
    """
    where = f"--output {folder}"
    real = Path(os.path.realpath(_followed(folder, where)))
    _check_utf8(real, where)
    if source is not None:
        other = Path(os.path.realpath(source))
        if other.is_relative_to(real) or any(real.is_relative_to(other / part) for part in parts):
            raise UserError(f"{where}: would take the place of {source} or a part of it; choose another folder")
    for temporary in ("new", "lock"):
        with writing(where):
            _status(real.with_name(f".{real.name}.{temporary}"))
    _check_folder(real.parent, where)


def takes_place_of(output: Path, source: Path) -> bool:
    """Whether a file written to `output` takes the place of `source` or, in a folder, of a file that is read there.

    Links of both kinds count. A file that does not exist yet takes nothing's place, except that of the same path.
    """
    real, real_source = Path(os.path.realpath(output)), Path(os.path.realpath(source))
    if real == real_source:
        return True
    if not output.exists() or not source.exists():
        return False
    if not source.is_dir():
        return output.samefile(source)
    if _is_read(real, real_source):
        return True
    written = output.stat()
    statuses = (_status(path) for path in _files(source) if _is_read(path, source))
    return any(status is not None and os.path.samestat(status, written) for status in statuses)


def _files(folder: Path) -> Iterator[Path]:
    """The files in a folder, down to its grandchildren's; a run under way may have removed them in the meantime."""
    for place, folders, names in os.walk(folder, followlinks=True):  # the hub's cache has links to other folders
        path = Path(place)
        if len(path.relative_to(folder).parts) == 2:
            folders.clear()
        yield from (path / name for name in names)


def check_inputs(outputs: Iterable[Path], inputs: Inputs | None, where: str) -> None:
    """Refuses files that would take the place of an input.

    Args:
      outputs: the files that are written, or removed.
      where: how the message begins: the option and its value.
    """
    outputs = list(outputs)
    for option, source in _local(inputs):
        for output in outputs:
            with writing(where):
                if takes_place_of(output, source):
                    article = "a file of" if source.is_dir() else "the file of"
                    raise UserError(f"{where}: {output} is {article} {option}, which would be lost; choose another")


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


def _check_stream(path: Path, where: str, streamed: bool) -> None:
    if not streamed:
        raise UserError(f"{where}: a device or a pipe, and this output is written in parts; name a file")
    if (descriptor := own_descriptor(path)) is not None:
        with writing(where):
            mode = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if mode & os.O_ACCMODE == os.O_RDONLY:
            raise UserError(f"{where}: is only open for reading")
        return
    mode = path.stat().st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise UserError(f"{where}: a {'socket' if stat.S_ISSOCK(mode) else 'disk'}; name a file")
    if not _is_writable(path):
        raise UserError(f"{where}: cannot be written to")


def _followed(path: Path, where: str) -> Path:
    """The target of a link; other paths as they are."""
    if not os.path.islink(path):
        return path
    followed = os.path.realpath(path)
    if os.path.islink(followed):
        raise UserError(f"{where}: a link that leads back to itself")
    return Path(followed)


def _check_utf8(path: Path, where: str) -> None:
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: not UTF-8, as the libraries that write there need it; choose another") from None


def _check_replaced(path: Path, where: str) -> None:
    if path.is_file() and not _is_writable(path):
        raise UserError(f"{where}: may not be written; change its mode or choose another")


def _is_writable(path: Path) -> bool:
    """Whether this process may write to the file, by its mode."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


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


def _is_read(path: Path, source: Path) -> bool:
    """Whether a file is one of those that are read in the folder `source`, and not in a run or an index within it."""
    if not path.is_relative_to(source):
        return False
    within = [path.parents[place] for place in range(len(path.relative_to(source).parts) - 1)]
    if any((folder / name).exists() for folder in within for name in OWN):
        return False
    if path.suffix.lower() in (".npy", ".parquet"):
        return (path.parent / INDEX).exists()
    return path.suffix.lower() not in WRITTEN or any(fnmatch(path.name, pattern) for pattern in READ)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
