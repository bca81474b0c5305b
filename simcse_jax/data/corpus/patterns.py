"""The files that patterns name, on a disk or in a bucket."""

import glob
import os
from collections.abc import Sequence

from simcse_jax.data.examples import prefix_of, source_path
from simcse_jax.data.sources import split_sources
from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import as_path, is_remote


def expand(data: Sequence[str], option: str) -> list[str]:
    """The sources, with the files of each pattern in the order of their names.

    Args:
      data: names of sources, several in one with commas, and patterns of files.
      option: where they were given, for messages.
    """
    found: list[str] = []
    for given in data:
        for name in split_sources(given):
            if prefix_of(name) or not glob.has_magic(name) or (not is_remote(name) and source_path(name).exists()):
                found.append(name)
                continue
            files = _matching(name, option)
            if not files:
                raise UserError(f"{option} {name}: no file has such a name")
            found += files
    seen: set[str] = set()
    for name in found:
        place = name if prefix_of(name) or is_remote(name) else os.path.abspath(source_path(name))
        if place in seen:
            raise UserError(f"{option}: {name} is named twice; remove one")
        seen.add(place)
    return found


def _matching(pattern: str, option: str) -> list[str]:
    if not is_remote(pattern):
        return sorted(glob.glob(str(source_path(pattern)), recursive=True))
    bucket, _, rest = pattern.removeprefix("gs://").partition("/")
    try:
        return sorted(str(path) for path in as_path(f"gs://{bucket}").glob(rest))
    except UserError:
        raise
    except Exception as error:  # of the store's client
        raise UserError(f"{option} {pattern}: cannot be listed: {reason(error)}") from None
