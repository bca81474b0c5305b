"""Data files: damaged text, tables, JSON lines and parquet, for every command that reads data."""

import gzip
import io
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
from hostile.case import EITHER, REFUSED, SAME, Case
from hostile.damages import PLACES, Make, cut, flip, instead, unreadable, write
from hostile.seeds import GRADED, SENTENCES, train_arguments

LINES = "\n".join(SENTENCES) + "\n"
HEAD = "sentence1\tsentence2\tscore\n"
ROWS = "".join(f"{a}\t{b}\t{score}\n" for a, b, score in GRADED)
DEEP = "[" * 50_000 + "]" * 50_000


class Place(NamedTuple):
    """Where a command takes a file."""

    command: str
    option: str
    arguments: list[str]  # {} is the file


TUNED = ("--model=model", "--workdir=run", "--config.train.max_steps=1")
# The first takes sentences, the second graded pairs.
OF_SENTENCES = [
    Place("encode", "--data", ["--model=model", "--data={}", "--output=out.npy"]),
    Place("search", "--data", ["--model=model", "--data={}", "--query=a", "--output=out.json"]),
    Place("search", "--queries", ["--model=model", "--data=text.txt", "--queries={}", "--output=out.json"]),
    Place("analyze", "--data", ["--model=model", "--data={}", "--output=out"]),
    Place("train", "data.train", train_arguments("run", data__train="{}")),
    Place("demo", "--data", ["--model=model", "--data={}", "--port=0"]),
    Place("tune", "--data", [*TUNED, "--data={}"]),
    Place("train", "analysis.data", train_arguments("run", analysis__every=1, analysis__data="{}")),
]
OF_PAIRS = [
    Place("evaluate", "--data", ["--model=model", "--data={}", "--output=out.json"]),
    Place("geometry", "--data", ["--models=model", "--data={}", "--output=out"]),
    Place("train", "eval.data", train_arguments("run", eval__data="{}")),
    Place("tune", "--eval", [*TUNED, "--data=text.txt", "--eval={}"]),
    Place("overlap", "data", ["{}"]),
]
INPUTS = ("model", "text.txt", "pairs.tsv")

TEXTS: dict[str, tuple[bytes | str, str]] = {  # the end of a command that reads sentences
    "empty": ("", REFUSED),
    "blank lines": ("\n \n\t\n", EITHER),
    "one row": ("a cat\n", EITHER),
    "NULs": ("a cat\0\n" * 12, EITHER),
    "only NULs": (b"\0" * 4096, EITHER),
    "not UTF-8": (LINES.encode() + b"caf\xe9\n", REFUSED),
    "half a character": (LINES.encode() + "é".encode()[:1], REFUSED),
    "UTF-16 with a mark": (LINES.encode("utf-16"), EITHER),
    "UTF-16 without a mark": (LINES.encode("utf-16-le"), REFUSED),
    "UTF-16, the other order": (LINES.encode("utf-16-be"), REFUSED),
    "UTF-32": (LINES.encode("utf-32"), EITHER),
    "gzip": (gzip.compress(LINES.encode()), REFUSED),
    "a surrogate's bytes": (LINES.encode() + b"\xed\xa0\x80\n", REFUSED),
    "one line of a megabyte": ("a cat " * 170_000, EITHER),
    "control characters": ("".join(chr(c) for c in range(1, 32)) * 3 + "\n" + LINES, EITHER),
    "joined marks": ("e" + "\u0301" * 2_000 + "\n" + LINES, EITHER),
    "unknown planes": ("\U0010ffff \ue000 \ufffe\n" + LINES, EITHER),
}
UNCHANGED: dict[str, bytes] = {
    "a mark of UTF-8": b"\xef\xbb\xbf" + LINES.encode(),
    "CRLF": LINES.replace("\n", "\r\n").encode(),
    "no last line break": LINES.encode()[:-1],
}

TABLES: dict[str, tuple[bytes | str, str]] = {  # graded pairs with tabs
    "empty": ("", REFUSED),
    "only a header": (HEAD, REFUSED),
    "one row": (HEAD + ROWS.splitlines()[0] + "\n", EITHER),
    "a missing column": ("sentence1\tscore\na\t1\n", REFUSED),
    "no header": (ROWS, REFUSED),
    "a column twice": ("sentence1\tsentence1\tscore\n" + ROWS, REFUSED),
    "fewer cells in a row": (HEAD + ROWS + "a cat\tthe dog\n", REFUSED),
    "more cells in a row": (HEAD + ROWS + "a\tb\t1\t2\t3\n", EITHER),
    "a score that is a word": (HEAD + ROWS + "a\tb\thigh\n", REFUSED),
    "an empty score": (HEAD + ROWS + "a\tb\t\n", EITHER),
    "a score that is NaN": (HEAD + ROWS + "a\tb\tnan\n", REFUSED),
    "an infinite score": (HEAD + ROWS + "a\tb\tinf\n", REFUSED),
    "a score of 1e400": (HEAD + ROWS + "a\tb\t1e400\n", REFUSED),
    "a score with a comma": (HEAD + ROWS + "a\tb\t1,5\n", REFUSED),
    "a score of 5,000 digits": (HEAD + ROWS + "a\tb\t" + "9" * 5000 + "\n", REFUSED),
    "constant scores": (HEAD + "a cat\tthe dog\t3\na bird\tred tree\t3\nhome\tpark\t3\n", EITHER),
    "NULs": (HEAD + ROWS + "a\0b\tb\t1\n", EITHER),
    "not UTF-8": ((HEAD + ROWS).encode() + b"caf\xe9\tb\t1\n", REFUSED),
    "UTF-16 without a mark": ((HEAD + ROWS).encode("utf-16-le"), REFUSED),
    "gzip": (gzip.compress((HEAD + ROWS).encode()), REFUSED),
    "binary": (bytes(range(256)) * 16, REFUSED),
    "10,000 columns": ("\t".join(map(str, range(10_000))) + "\n", REFUSED),
    "a header of blanks": (" \t \t \n" + ROWS, REFUSED),
}
NO_SCORE = ("a score", "an infinite score", "an empty score")
QUOTED: dict[str, tuple[str, str]] = {  # a .csv of sentences
    "an open quote": ('sentence\n"a cat\nthe dog\n', EITHER),
    "a quote within": ('sentence\na "cat"\nthe dog\n', EITHER),
    "a missing column": ("x,y\na,b\n", REFUSED),
    "only a header": ("sentence\n", REFUSED),
    "a cell of a megabyte": ("sentence\n" + "a cat " * 170_000 + "\n", EITHER),
    "cells that lack": ("sentence,other\na cat,1\n\nthe dog\n", EITHER),
    "a column twice": ("sentence,sentence\na,b\n", EITHER),
    "empty cells": ('sentence,other\n"",1\n"",2\n', EITHER),
}
JSON_LINES: dict[str, tuple[str, str]] = {
    "a line that is no JSON": ('{"sentence": "a"}\n{"sentence": \n', REFUSED),
    "a line that is a list": ('{"sentence": "a"}\n["b"]\n', REFUSED),
    "a line that is null": ('{"sentence": "a"}\nnull\n', REFUSED),
    "a sentence that is null": ('{"sentence": "a"}\n{"sentence": null}\n', EITHER),
    "a sentence that is a number": ('{"sentence": "a"}\n{"sentence": 3}\n', REFUSED),
    "a sentence that is a list": ('{"sentence": "a"}\n{"sentence": ["b"]}\n', REFUSED),
    "a row without the key": ('{"sentence": "a"}\n{"other": "b"}\n', REFUSED),
    "a line nested deeply": ('{"sentence": "a"}\n' + DEEP + "\n", REFUSED),
    "another key nested deeply": ('{"sentence": "a", "x": ' + DEEP + "}\n", EITHER),
    "a lone surrogate": ('{"sentence": "a"}\n{"sentence": "\\ud800"}\n', EITHER),
    "a surrogate as a key": ('{"sentence": "a", "\\ud800": 1}\n{"sentence": "b", "\\ud800": 1}\n', EITHER),
    "only surrogates as keys": ('{"\\ud800": "a"}\n', EITHER),
    "a number of 6,000 digits": ('{"sentence": "a", "x": ' + "9" * 6000 + "}\n", EITHER),
    "not UTF-8": ('{"sentence": "caf\udce9"}\n', REFUSED),
    "one object over lines": ('{\n"sentence": "a"\n}\n', REFUSED),
    "an empty file": ("", REFUSED),
    "empty objects": ("{}\n{}\n", REFUSED),
    "the same key twice": ('{"sentence": "a", "sentence": "b"}\n', EITHER),
}


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """A table as the bytes of a file."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, **options)
    return sink.getvalue()


def invalid_strings(rows: int) -> pyarrow.Array:
    """A column of strings that are not UTF-8."""
    data = b"caf\xe9" * rows
    offsets = pyarrow.py_buffer(b"".join((4 * i).to_bytes(4, "little") for i in range(rows + 1)))
    return pyarrow.StringArray.from_buffers(rows, offsets, pyarrow.py_buffer(data))


WORDS = pyarrow.array(SENTENCES)
N = len(SENTENCES)
PARQUETS: dict[str, tuple[bytes, str]] = {
    "no rows": (parquet({"sentence": pyarrow.array([], pyarrow.string())}), REFUSED),
    "no columns": (parquet({}), REFUSED),
    "a column of numbers": (parquet({"sentence": list(range(N))}), REFUSED),
    "a column of lists": (parquet({"sentence": [["a"]] * N}), REFUSED),
    "a null": (parquet({"sentence": [*SENTENCES[:-1], None]}), EITHER),
    "only nulls": (parquet({"sentence": pyarrow.nulls(N)}), EITHER),
    "invalid UTF-8": (parquet({"sentence": invalid_strings(N)}), REFUSED),
    "invalid UTF-8 in another column": (parquet({"sentence": WORDS, "other": invalid_strings(N)}), EITHER),
    "a time out of range": (
        parquet({"sentence": WORDS, "t": pyarrow.array([2**62] * N, pyarrow.timestamp("us"))}),
        EITHER,
    ),
    "a binary column": (parquet({"sentence": pyarrow.array([b"\xff"] * N)}), REFUSED),
    "text of another name": (parquet({"x": WORDS, "y": WORDS}), EITHER),
    "a surrogate's bytes in a name": (parquet({"sentence": WORDS}).replace(b"sentence", b"sent\xed\xa0\x80e"), REFUSED),
}
SAME_PARQUETS = {
    "a dictionary": parquet({"sentence": WORDS.dictionary_encode()}),
    "large strings": parquet({"sentence": WORDS.cast(pyarrow.large_string())}),
    "many row groups": parquet({"sentence": WORDS}, row_group_size=1),
    "no compression": parquet({"sentence": WORDS}, compression="none"),
}


def case(place: Place, name: str, damage: str, make: Make, end: str, **options: Any) -> Case:
    """The file `name` at a place of a command."""
    arguments = [argument.replace("{}", name) for argument in place.arguments]
    text = f"{place.option} {name} {damage}"
    leaves = ("run", "run/*") if end == EITHER else ()
    output = "out.npy" if place.command == "encode" else ""
    return Case(
        "data files",
        place.command,
        text,
        arguments,
        INPUTS,
        make,
        end,
        name if end == REFUSED else "",
        output,
        leaves,
        options,
    )


def cases() -> Iterator[Case]:
    yield from sentences()
    yield from pairs()
    yield from places()
    yield from flipped()


def sentences() -> Iterator[Case]:
    """Refusals are quick, so all commands get them; what is read to the end goes to `encode` and one other."""
    tables = [("x.txt", TEXTS), ("x.csv", QUOTED), ("x.jsonl", JSON_LINES), ("x.parquet", PARQUETS)]
    others = itertools.cycle(OF_SENTENCES[1:3])
    for name, damages in tables:
        for damage, (data, end) in damages.items():
            chosen = OF_SENTENCES if end == REFUSED else [OF_SENTENCES[0], next(others)]
            for place in chosen:
                if place.option == "analysis.data" and name == "x.txt" and "UTF-16" in damage:
                    continue
                yield case(place, name, damage, write(name, data), end)
    for damage, data in UNCHANGED.items():
        yield same("text.txt", damage, write("text.txt", data))
    for damage, data in SAME_PARQUETS.items():
        yield same("text.txt", f"as parquet with {damage}", write("x.parquet", data), "x.parquet")


def same(name: str, damage: str, make: Make, file: str = "") -> Case:
    """Embeddings equal to those of text.txt."""
    arguments = [argument.replace("{}", file or name) for argument in OF_SENTENCES[0].arguments]
    base = tuple(argument.replace("{}", name) for argument in OF_SENTENCES[0].arguments)
    return Case("data files", "encode", f"{name} {damage}", arguments, INPUTS, make, SAME, output="out.npy", like=base)


def pairs() -> Iterator[Case]:
    for damage, (data, end) in TABLES.items():
        for place in OF_PAIRS:
            may_end_otherwise = place.command in ("overlap", "tune")  # which read no scores, or need more pairs
            yield case(place, "x.tsv", damage, write("x.tsv", data), EITHER if may_end_otherwise else end)


def places() -> Iterator[Case]:
    for place in (*OF_SENTENCES, *OF_PAIRS):
        name = "x.tsv" if place in OF_PAIRS else "x.txt"
        for damage, put in PLACES.items():
            yield case(place, name, f"is {damage}", instead(name, put), REFUSED)
        data = HEAD + ROWS if place in OF_PAIRS else LINES
        make = write(name, data)
        yield case(
            place,
            name,
            "may not be read",
            lambda folder, make=make, name=name: (make(folder), unreadable(name)(folder)),
            REFUSED,
            drop=True,
        )


def flipped() -> Iterator[Case]:
    """Parquet with a few changed bytes, and cut short."""
    whole = parquet({"sentence": WORDS, "other": list(range(N))})
    readers = itertools.cycle(OF_SENTENCES[:3])
    for seed in range(24):
        make = write("x.parquet", whole)
        yield case(
            next(readers),
            "x.parquet",
            f"changed by seed {seed}",
            lambda folder, make=make, seed=seed: (make(folder), flip("x.parquet", seed)(folder)),
            EITHER,
        )
    for share in (0, 0.01, 0.5, 0.99):
        make = write("x.parquet", whole)
        yield case(
            next(readers),
            "x.parquet",
            f"cut to {share}",
            lambda folder, make=make, share=share: (make(folder), cut("x.parquet", share)(folder)),
            REFUSED,
        )
