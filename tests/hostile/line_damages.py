"""What can be wrong with a file of lines: of text, of a table, or of JSON."""

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping

from hostile.case import EITHER, REFUSED, Case, Reader
from hostile.damages import PLACES, Make, both, change, instead
from hostile.json_damages import VALUES, Change

DEEP = "[" * 50_000 + "]" * 50_000


def last(changed: Change) -> Change:
    """Changes the last line."""
    return lambda data: b"\n".join([*data.splitlines()[:-1], changed(data.splitlines()[-1])]) + b"\n"


LINES: dict[str, Change] = {"empty": lambda data: b"", "blank lines": lambda data: b"\n \n\t\n"}
LINES |= {"a first line alone": lambda data: data.splitlines(True)[0]}
LINES |= {"no first line": lambda data: b"".join(data.splitlines(True)[1:]), "everything twice": lambda data: data * 2}
LINES |= {"NULs": lambda data: data.replace(b"a", b"\0"), "not UTF-8": lambda data: data + b"caf\xe9\n"}
LINES |= {"half a character": lambda data: data + "é".encode()[:1]}
LINES |= {"a surrogate's bytes": lambda data: data + b"\xed\xa0\x80\n"}
LINES |= {"UTF-16 with a mark": lambda data: data.decode().encode("utf-16")}
LINES |= {"UTF-16 without a mark": lambda data: data.decode().encode("utf-16-le"), "gzip": gzip.compress}
LINES |= {"binary": lambda data: bytes(range(256)) * 16}
LINES |= {"a line of a megabyte": lambda data: data + b"a cat " * 170_000 + b"\n"}
LINES |= {"a line that is cut": last(lambda line: line[: len(line) // 2])}
LINES |= {"control characters": lambda data: data + bytes(range(1, 10)) + b"\n"}
LINES |= {"unknown planes": lambda data: data + "\U0010ffff \ue000 \ufffe e\u0301\u0301\n".encode()}
LINES |= {"a line nested deeply": lambda data: data + DEEP.encode() + b"\n"}
SURE = {"empty", "not UTF-8", "half a character", "a surrogate's bytes", "binary"}  # what must be refused
NO_NUMBERS = {"a word": "good", "NaN": "nan", "1e400": "1e400", "of 5,000 digits": "9" * 5000}
SURE |= {f"a cell that is {name}" for name in NO_NUMBERS}
PERHAPS = {"empty": "", "of other digits": "١", "below zero": "-1", "hex": "0x1", "true": "true"}
PERHAPS |= {"with an underscore": "1_0"}


def cells(separator: str, numbers: bool = True) -> dict[str, Change]:
    """Of a table whose last column has numbers, or only of its form."""
    mark = separator.encode()
    form: dict[str, Change] = {
        "a cell more": last(lambda line: line + mark + b"x"),
        "a cell fewer": last(lambda line: line.rpartition(mark)[0]),
        "a column twice": lambda data: data.replace(
            b"\n", mark + data.partition(b"\n")[0].rpartition(mark)[2] + b"\n", 1
        ),
        "a quotation mark": last(lambda line: b'"' + line),
    }
    values = {f"a cell that is {name}": value.encode() for name, value in (NO_NUMBERS | PERHAPS).items() if numbers}
    return form | {
        name: last(lambda line, value=value: line.rpartition(mark)[0] + mark + value) for name, value in values.items()
    }


def records(*fields: str) -> dict[str, Change]:
    """Of objects a line: their fields lack, or have other values, of which each field has some."""

    def put(field: str, value: object) -> Change:
        return last(lambda line: json.dumps(json.loads(line) | {field: value}).encode())

    def drop(field: str) -> Change:
        kept = lambda line: {name: value for name, value in json.loads(line).items() if name != field}  # noqa: E731
        return last(lambda line: json.dumps(kept(line)).encode())

    values = itertools.cycle(VALUES.items())
    some = [(field, *each) for field in fields for each in itertools.islice(values, 7)]
    return (
        {f"{field} is {name}": put(field, value) for field, name, value in some}
        | {f"no {field}": drop(field) for field in fields}
        | {"a record that is a list": last(lambda line: b"[" + line + b"]")}
        | {"a field nested deeply": last(lambda line: b'{"x": ' + DEEP.encode() + b", " + line.lstrip()[1:])}
    )


def of_lines(
    kind: str, readers: Iterable[Reader], file: str, damages: Mapping[str, Change], valid: Make | None = None
) -> Iterator[Case]:
    """The damages of a file, and what can be in its place, for its readers in turn."""
    turns, name = itertools.cycle(readers), file.rpartition("/")[2]
    for damage, changed in damages.items():
        make = both(*filter(None, (valid, change(file, changed))))
        end = REFUSED if damage in SURE else EITHER
        yield next(turns).case(kind, f"{name}: {damage}", make, end, name if end == REFUSED else "")
    for damage, put in PLACES.items():
        yield next(turns).case(kind, f"{name} is {damage}", instead(file, put), names=name)
