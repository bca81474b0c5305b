"""The files that a name stands for: a file, the files of a folder, or those that match a pattern."""

import glob
from pathlib import PurePath

from simcse_jax.data.files import READERS
from simcse_jax.errors import UserError, reason
from simcse_jax.host.hidden import is_hidden
from simcse_jax.host.storage import Folder, as_path, is_remote, local_path


def source_path(name: str) -> Folder:
    """The path of a file, on a disk or in a bucket."""
    return as_path(name) if is_remote(name) else local_path(name)


def files_of(name: str) -> list[str]:
    """The files of a name, sorted; those whose names begin with a dot or `_` are left out.

    Args:
      name: a file, which need not exist; a folder, of which the files of known types are read, not those of folders in
        it; or a pattern. On a disk or in a bucket.
    """
    pattern = glob.has_magic(name) and (is_remote(name) or not source_path(name).exists())
    if not pattern and (PurePath(name).suffix.lower() in READERS or not source_path(name).is_dir()):
        return [name]  # a bucket is not asked for a file
    found = _matching(name) if pattern else sorted(str(path) for path in source_path(name).iterdir() if path.is_file())
    own = is_hidden(PurePath(name).name)  # such a pattern asks for them
    found = [each for each in found if own or not is_hidden(PurePath(each).name)]
    if pattern and not found:
        raise UserError(f"{name}: no file matches")
    if not pattern and not (found := [each for each in found if PurePath(each).suffix.lower() in READERS]):
        raise UserError(f"{name}: a folder without {', '.join(READERS)} files")
    return found


def as_inputs(option: str, name: str | None) -> dict[str, str]:
    """What an option reads, for the checks of outputs (`host.outputs.Inputs`): the name itself and all its files."""
    files = [] if name is None else [each for each in files_of(name) if each != name]
    return ({} if name is None else {option: name}) | {f"{option} {file}": file for file in files}


def _matching(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return sorted(glob.glob(str(source_path(pattern)), recursive=True))
    bucket, _, rest = pattern.removeprefix("gs://").partition("/")
    try:
        return sorted(str(path) for path in as_path(f"gs://{bucket}").glob(rest))
    except UserError:
        raise
    except Exception as error:  # of the store's client
        raise UserError(f"{pattern}: cannot be listed: {reason(error)}") from None
