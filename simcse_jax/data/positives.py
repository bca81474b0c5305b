"""Several positives of one anchor, in a list: FlagEmbedding's `query`, `pos` and `neg`."""

from collections.abc import Iterator, Sequence

from simcse_jax.data.negatives import is_written_list, look
from simcse_jax.data.rows import MISSING, Row
from simcse_jax.errors import UserError


def one_by_one(rows: Iterator[Row], names: Sequence[str], place: int, *for_each: int) -> Iterator[Row]:
    """The same rows or, if the first has its positives in a list, a row for each positive of each row.

    A row without positives stays one row, with a blank positive.

    Args:
      rows: the rows.
      names: of the columns.
      place: the column of positives.
      for_each: columns with a list of values, one for each positive: scores, say.
    """
    rows, lists = look(rows, place)
    for row in rows:
        values, field = row.fields[place], f"{row.where}: the field {names[place]!r}"
        if not lists:
            if isinstance(values, str) and is_written_list(values):
                raise UserError(f"{field} is a list written as text; write lists in a .jsonl or .parquet")
            yield row
            continue
        if values is None or values == []:
            yield row._replace(fields=[None if at == place else value for at, value in enumerate(row.fields)])
            continue
        if values is MISSING:
            raise UserError(f"{field} is missing")
        if not isinstance(values, list):
            raise UserError(f"{field} is {values!r:.60}, but that of the first row is a list; make all of them lists")
        for number, value in enumerate(values):
            fields = list(row.fields)
            fields[place] = value
            for at in for_each:
                fields[at] = _of_positive(row.fields[at], number, len(values), f"{row.where}: the field {names[at]!r}")
            yield row._replace(fields=fields)


def _of_positive(values: object, number: int, count: int, field: str) -> object:
    """The value of a positive in a list of one for each, which may be a single value for a single positive."""
    listed = values if isinstance(values, list) else [values]
    if values is None:
        return None
    if len(listed) != count:
        raise UserError(f"{field} has {len(listed)} values for {count} positives; give a list with one for each")
    return listed[number]
