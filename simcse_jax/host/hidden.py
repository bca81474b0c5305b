"""Hidden names, for files in a folder of data that are not data.

pyarrow, pandas, datasets and Spark skip files whose names begin with a dot. Earlier versions wrote the same names
without the dot, and what they began keeps them.
"""

from pathlib import Path

from simcse_jax.errors import UserError, why
from simcse_jax.host.storage import Folder

DOT = "."
# In a folder of embeddings, after the dot: the plan, the list of all blocks, the numbers of rows of a file, the ranges.
PLAN, MANIFEST, COUNTED, RANGES = "plan.json", "embeddings.json", "rows-*.json", "quantization.json"
BEGUN = (".partial", ".state.json")  # endings of a file that is made in parts


def is_hidden(name: str) -> bool:
    """Whether a file of this name is not data: hidden, macOS's `._*`, Spark's `_SUCCESS`."""
    return name.startswith((DOT, "_"))


def dot_before(folder: Folder, *names: str, new: str = DOT) -> str:
    """The prefix of these names in a folder: a dot, or nothing where an earlier version wrote one of them.

    `folder`: on a disk or in a bucket; it need not exist.
    """
    try:
        found = {dot: [name for name in names if (folder / f"{dot}{name}").exists()] for dot in (DOT, "")}
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{folder}: cannot be read: {why(error)}") from None
    if found[DOT] and found[""]:
        raise UserError(
            f"{folder}: has {DOT}{found[DOT][0]} and {found[''][0]}, which an earlier version wrote; keep the one that "
            "its other files belong to, and remove the other"
        )
    return DOT if found[DOT] else "" if found[""] else new


def begun(output: Path) -> tuple[Path, Path]:
    """The incomplete file, `.NAME.partial`, and the state of the work on it, `.NAME.state.json`."""
    names = [f"{output.name}{ending}" for ending in BEGUN]
    dot = dot_before(output.parent, names[-1])  # without a state, a file of records is of no use
    partial, state = (output.with_name(f"{dot}{name}") for name in names)
    return partial, state
