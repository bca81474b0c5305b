"""Names that begin with a dot: those of files that are not data, in a folder of data.

pyarrow, pandas, datasets and Spark read all files of a folder but those. Earlier versions wrote the same names without
the dot, and what they began keeps them.
"""

from pathlib import Path

from simcse_jax.errors import UserError, why
from simcse_jax.host.storage import Folder

DOT = "."
# In a folder of embeddings, after the dot: the plan, the list of all blocks, the numbers of rows of a file, the ranges.
PLAN, MANIFEST, COUNTED, RANGES = "plan.json", "embeddings.json", "rows-*.json", "quantization.json"
BEGUN = (".partial", ".state.json")  # endings of a file that is made in parts


def dot_before(folder: Folder, *names: str, new: str = DOT) -> str:
    """What these names begin with in a folder: a dot, or nothing where an earlier version wrote one of them.

    Args:
      folder: on a disk or in a bucket; it need not exist.
      names: without the dot.
      new: the answer where none of them is there.
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
    """What a file is made in until it is complete, `.NAME.partial`, and the state of that work, `.NAME.state.json`."""
    names = [f"{output.name}{ending}" for ending in BEGUN]
    dot = dot_before(output.parent, names[-1])  # without a state, a file of records is of no use
    partial, state = (output.with_name(f"{dot}{name}") for name in names)
    return partial, state
