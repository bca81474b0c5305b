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
        values = given[names[0]]
        if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
            raise UserError(f"column {names[0]!r}: {values!r:.60}: not a list of strings")
        return names[0], _listed(values)
    return None, _listed(given)


def _listed(values: Any) -> Iterable[Any]:
    """Arrow's arrays as lists: their elements are not strings."""
    if getattr(values, "ndim", 1) > 1:
        raise UserError(f"an array of shape {tuple(values.shape)}, not a list of strings")
    return values.to_pylist() if hasattr(values, "to_pylist") else values


def _columns(given: Any) -> list[Any] | None:
    """The names of a table's columns; None for anything else."""
    if isinstance(given, Mapping):
        return list(given)
    if not hasattr(given, "__len__"):  # an iterator, or a query that has not run
        return None
    kind = type(given)  # pandas takes names of rows and columns for attributes of an object
    attribute = next((name for name in ("column_names", "columns") if hasattr(kind, name)), None)  # Arrow has both
    names = None if attribute is None else getattr(given, attribute)
    names = getattr(getattr(given, "dtype", None), "names", None) if names is None else names  # NumPy's records
    return None if names is None else list(names)
