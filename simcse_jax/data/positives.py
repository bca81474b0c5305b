"""Several positives of one anchor, in a list: FlagEmbedding's `query`, `pos` and `neg`."""

from collections.abc import Iterator, Sequence

from simcse_jax.data.negatives import look
from simcse_jax.data.rows import Row
from simcse_jax.errors import UserError


def one_by_one(rows: Iterator[Row], names: Sequence[str], place: int, score: int | None = None) -> Iterator[Row]:
    """The same rows or, if the first has its positives in a list, a row for each positive of each row.

    A row without positives stays one row, with a blank positive.

    Args:
      rows: the rows.
      names: of the columns.
      place: the column of positives.
      score: the column of scores, a list of which has one for each positive; None: there is none.

    Raises:
      UserError: naming the row whose field is not a list, or has another number of scores.
    """
    rows, lists = look(rows, place)
    if not lists:
        yield from rows
        return
    for row in rows:
        values = row.fields[place]
        if values is None or values == []:
            values = [""]
        if not isinstance(values, list):
            what = f"{row.where}: the field {names[place]!r} is {values!r:.60}"
            raise UserError(f"{what}, but that of the first row is a list; make all of them lists")
        scores = None if score is None else row.fields[score]
        if isinstance(scores, list) and len(scores) != len(values):
            field = f"{row.where}: the field {names[score or 0]!r}"
            raise UserError(f"{field} has {len(scores)} scores for {len(values)} positives; give one for each")
        for number, value in enumerate(values):
            fields = list(row.fields)
            fields[place] = value
            if score is not None and isinstance(scores, list):
                fields[score] = scores[number]
            yield row._replace(fields=fields)
