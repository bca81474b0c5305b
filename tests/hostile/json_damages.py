"""What can be wrong with a JSON file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.damages import change

Change = Callable[[bytes], bytes]

# Of the file as bytes; none of these is the file that it was.
WHOLE: dict[str, Change] = {"empty": lambda data: b"", "blank": lambda data: b" \n\n"}
WHOLE |= {"truncated": lambda data: data[: len(data) // 2], "a list": lambda data: b"[" + data.strip() + b"]"}
WHOLE |= {"an empty list": lambda data: b"[]", "null": lambda data: b"null", "a number": lambda data: b"7"}
WHOLE |= {"a string": lambda data: b'"text"', "true": lambda data: b"true"}
WHOLE |= {"binary": lambda data: bytes(range(256)) * 4, "nested deeply": lambda data: b"[" * 100_000}
WHOLE |= {"objects nested deeply": lambda data: b'{"a":' * 100_000}
WHOLE |= {"nested and closed": lambda data: b"[" * 20_000 + b"]" * 20_000}
WHOLE |= {"UTF-16": lambda data: data.decode().encode("utf-16"), "Latin-1": lambda data: b'{"\xe9": "\xe9"}'}
WHOLE |= {"NULs": lambda data: b"\0" * 512, "twice": lambda data: data + data}
WHOLE |= {"single quotes": lambda data: data.replace(b'"', b"'"), "a comment": lambda data: b"// a comment\n" + data}
WHOLE |= {"a lone surrogate": lambda data: b'{"\\ud800": "\\udfff"}'}
WHOLE |= {"a huge number": lambda data: b'{"a": ' + b"9" * 6000 + b"}"}
HARMLESS: dict[str, Change] = {  # a reader may refuse it, or read the same
    "a mark of UTF-8": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "another key": lambda data: b'{"of a later version": [1, {"a": null}], ' + data.lstrip()[1:],
    "a surrogate as a key": lambda data: b'{"\\ud800": 1, ' + data.lstrip()[1:],
    "NaN in another key": lambda data: b'{"other": NaN, ' + data.lstrip()[1:],
}
# In place of a field's value.
VALUES: dict[str, Any] = {"null": None, "a string": "text", "an empty string": "", "digits as a string": "2"}
VALUES |= {"true": True, "a list": [1, "a"], "an empty list": [], "an object": {"a": 1}, "zero": 0, "minus one": -1}
VALUES |= {"a fraction": 0.5, "1e400": float("inf"), "NaN": float("nan"), "10^20": 10**20, "-10^20": -(10**20)}
VALUES |= {"a lone surrogate": "\ud800", "a path": "../../x"}


def change_json(name: str, changed: Callable[[Any], Any]) -> Callable[[Path], object]:
    """Puts another value into the file `name`."""
    return change(name, lambda data: json.dumps(changed(json.loads(data))).encode())


def edit_json(name: str, *edits: Callable[[Any], object]) -> Callable[[Path], object]:
    """Changes the value in the file `name` in place."""

    def edited(value: Any) -> Any:
        for edit in edits:
            edit(value)
        return value

    return change_json(name, edited)


def update_json(name: str, **fields: Any) -> Callable[[Path], object]:
    """Sets fields of the object in the file `name`."""
    return edit_json(name, lambda value: value.update(fields))


def set_field(name: str, field: str, value: Any) -> Callable[[Path], object]:
    """Sets a field in the file `name`: `a/b` is the field b of the object a, `0/a` of the first item of a list."""

    def edit(whole: Any) -> None:
        place, last = _find(whole, field)
        place[last] = value

    return edit_json(name, edit)


def drop_field(name: str, field: str) -> Callable[[Path], object]:
    """Removes a field."""

    def edit(whole: Any) -> None:
        place, last = _find(whole, field)
        if isinstance(place, list) or last in place:
            del place[last]

    return edit_json(name, edit)


def _find(whole: Any, field: str) -> tuple[Any, Any]:
    """The object or list that holds a field, and the field's key in it."""
    *path, last = (int(part) if part.isdigit() else part for part in field.split("/"))
    for part in path:
        whole = whole[part]
    return whole, last
