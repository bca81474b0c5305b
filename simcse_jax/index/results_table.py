"""The results of a search, as a table for a terminal."""

import unicodedata
from collections.abc import Sequence

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from simcse_jax.index.index import Result

WIDTH = 120  # maximum columns of a line


def table(query: str, titles: Sequence[str], results: Sequence[Sequence[Result]]) -> str:
    """One model's results as a list, or several models' side by side as in SimCSE's Table 8.

    Lines are at most `WIDTH` columns of a terminal wide; longer sentences are wrapped.
    """
    rank = len(str(max(map(len, results), default=0))) + 1
    number = max((len(str(result.row)) for of_model in results for result in of_model), default=0)
    number = max(number, len("row"))
    cell = (WIDTH - rank - 2 - 3 * (len(results) - 1)) // len(results)
    text = cell - 6 - 2 - number - 2  # score, row and sentence, two columns apart

    def line(start: str, cells: Sequence[str]) -> str:
        padded = [set_cell_size(content, cell) for content in cells]
        return f"{start:<{rank}}  {' | '.join(padded)}".rstrip()

    lines = wrap(f"Query: {query}", WIDTH)
    if len(results) > 1:
        named = [wrap(title, cell) for title in titles]
        lines += [line("", cells) for cells in _rows(named)]
    lines.append(line("", [f"{'score':>6}  {'row':>{number}}  sentence"] * len(results)))
    if not any(results):
        lines.append("no sentence reaches the threshold")
    for place in range(max(map(len, results), default=0)):
        cells: list[list[str]] = []
        for of_model in results:
            if place >= len(of_model):
                cells.append([])
                continue
            result = of_model[place]
            first = f"{result.score:6.3f}  {result.row:>{number}}  "
            wrapped = wrap(result.sentence, text) or [""]
            cells.append([(" " * len(first) if more else first) + part for more, part in enumerate(wrapped)])
        lines += [line("" if more else f"#{place + 1}", parts) for more, parts in enumerate(_rows(cells))]
    return "\n".join(lines)


def _rows(columns: Sequence[Sequence[str]]) -> list[list[str]]:
    height = max(map(len, columns), default=0)
    return [[column[row] if row < len(column) else "" for column in columns] for row in range(height)]


def wrap(text: str, columns: int) -> list[str]:
    """The text in lines of at most `columns`, broken at spaces where possible; control characters become spaces."""
    printable = "".join(" " if unicodedata.category(character) == "Cc" else character for character in text)
    lines = Text(" ".join(printable.split())).wrap(Console(), columns, overflow="fold")
    return [line.plain.rstrip() for line in lines]
