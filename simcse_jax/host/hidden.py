"""Hidden names, for files in a folder of data that are not data.

pyarrow, pandas, datasets and Spark skip files whose names begin with a dot.
"""

from pathlib import Path

DOT = "."
# In a folder of embeddings, after the dot: the plan, the list of all blocks, the numbers of rows of a file, the ranges.
PLAN, MANIFEST, COUNTED, RANGES = "plan.json", "embeddings.json", "rows-*.json", "quantization.json"
BEGUN = (".partial", ".state.json")  # endings of a file that is made in parts


def is_hidden(name: str) -> bool:
    """Whether a file of this name is not data: hidden, macOS's `._*`, Spark's `_SUCCESS`."""
    return name.startswith((DOT, "_"))


def begun(output: Path) -> tuple[Path, Path]:
    """The incomplete file, `.NAME.partial`, and the state of the work on it, `.NAME.state.json`."""
    partial, state = (output.with_name(f"{DOT}{output.name}{ending}") for ending in BEGUN)
    return partial, state
