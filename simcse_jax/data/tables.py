"""Tables of one column as sentences: pandas' and Polars' frames, Arrow's tables, data sets, dictionaries of columns.

They are known by their attributes, so none of these packages is imported.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from simcse_jax.errors import UserError

SHOWN = 6  # names of columns in an error


def only_column(given: Any) -> tuple[Any, Iterable[Any]]:
    """The column of a table that has one; anything else as it is, Arrow's arrays as lists.

    Args:
      given: sentences, of which nothing is checked.

    Returns:
      The column's name, None for what is not a table, and the values.

    Raises:
      UserError: for a table of no or several columns, naming them, for an array of several axes, and for sets.
    """
    kind = type(given).__name__
    if isinstance(given, AbstractSet):
        raise UserError(f"{given!r:.60}: a {kind}, not a list; give its sentences in their order")
    names = _columns(given)
    if names == []:
        raise UserError(f"a {kind} without columns: give one column of sentences")
    if names is not None and len(names) > 1:
        has = ", ".join(map(str, names[:SHOWN])) + ", …" * (len(names) > SHOWN)
        usual = next((name for name in ("sentence", "text") if name in names), names[0])
        raise UserError(f"a {kind} with the columns {has}: give one column of sentences, such as table[{usual!r}]")
    if names is not None:
        return names[0], only_column(given[names[0]])[1]
    if getattr(given, "ndim", 1) > 1:
        raise UserError(f"an array of shape {tuple(given.shape)}, not a list of strings")
    return None, given.to_pylist() if hasattr(given, "to_pylist") else given


def _columns(given: Any) -> list[Any] | None:
    """The names of a table's columns; None for anything else."""
    if isinstance(given, Mapping):
        return list(given)
    if not hasattr(given, "__len__"):  # an iterator, or a query that has not run
        return None
    names = getattr(given, "column_names", None)  # Arrow and data sets; Arrow's `columns` are arrays
    names = getattr(given, "columns", None) if names is None else names
    names = getattr(getattr(given, "dtype", None), "names", None) if names is None else names  # NumPy's records
    return None if names is None else list(names)
