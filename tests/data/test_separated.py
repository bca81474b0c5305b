import csv
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.data.separated import read_separated, read_tabs

TEXTS = ['"Stop," said the man', 'A "quoted" word', '"All of it."', "plain", "a; b | c, d", "it's", '"', '""', "5"]
BREAKS = ["two\nlines", 'a "b"\n"c', "a\ttab"]  # they need quotation marks
QUOTINGS = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]


def rotations(texts: list[str]) -> Iterator[pandas.DataFrame]:
    """Each text may be the first to say that fields are quoted."""
    for first in range(len(texts)):
        turned = texts[first:] + texts[:first]
        scores = [float(row) for row in range(len(texts))]
        yield pandas.DataFrame({"sent0": turned, "sent1": turned[1:] + turned[:1], "score": scores})


def fields(path: Path) -> tuple[list[str], list[list[object]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names, rows = read_separated(path)
    return names, [list(row.fields) for row in rows]


@pytest.mark.parametrize("quoting", QUOTINGS)
def test_what_pandas_writes_is_read_with_any_separator_under_either_name_and_without_a_header(tmp_path, quoting):
    for name, separator in itertools.product(["a.csv", "a.tsv"], ["\t", ",", ";", "|"]):
        for written in rotations([*BREAKS, *TEXTS]):
            written.to_csv(tmp_path / name, sep=separator, index=False, quoting=quoting)
            names, rows = fields(tmp_path / name)
            assert names == ["sent0", "sent1", "score"]
            assert rows == [[a, b, str(score)] for a, b, score in written.itertuples(index=False)]
    for written in rotations([*BREAKS[:2], *TEXTS]):
        written.to_csv(tmp_path / "a.txt", sep="\t", index=False, header=False, quoting=quoting)
        expected = [[a, b, str(score)] for a, b, score in written.itertuples(index=False)]
        assert [row.fields for row in read_tabs(tmp_path / "a.txt")] == expected


@pytest.mark.filterwarnings("ignore:.*are separated by")
def test_quotation_marks_are_characters_unless_shown_and_tables_of_spreadsheets_are_read(tmp_path, write):
    for content in (
        '"Stop," said the man\tb\n',
        'a "b" c\t"d"\n',
        'x\t"never closed\ny\tz\n',
        'x\t"never closed\n"y\tz\n',
        '"\t"\n',
        '""a""\tb\n',
        '5"\t6\n',
        "a\rb\tc\n",  # a carriage return alone ends no line
        "no\tquotes\n",
        '"some are"\tothers not\n',
        '"I went home.\tx\nIt was late."\ty\n',  # a quotation over two rows
        '"I went home.\tx\nIt was late."\ty\nHe said "no"\tz\n',
        '"He said ""no"" twice"\tb\nHe said "no"\tc\n',  # a mark that a quoted field would not have
        '"He said ""no"" twice"\tb\n"a "b" c"\td\n',
    ):
        (tmp_path / "a.tsv").write_bytes(b"sent0\tsent1\n" + content.encode())
        expected = [line.split("\t") for line in content.removesuffix("\n").split("\n")]
        assert fields(tmp_path / "a.tsv")[1] == expected
        assert [row.fields for row in read_tabs(tmp_path / "a.tsv")][1:] == expected
    (tmp_path / "a.tsv").write_text('sentence\n"I went home.\nIt was late."\nplain one\n')
    assert fields(tmp_path / "a.tsv")[1] == [['"I went home.'], ['It was late."'], ["plain one"]]
    texts = [('"I went.', "B"), ('Late."', "D")]
    (tmp_path / "a.txt").write_text("".join(f"g\tf\t2012\t{n}\t{n}.0\t{a}\t{b}\n" for n, (a, b) in enumerate(texts)))
    assert [row.fields[5] for row in read_tabs(tmp_path / "a.txt")] == ['"I went.', 'Late."']
    for content, expected in (
        ('"a"\t"b"\t0.5\n"c"\t""\t1\n', [["a", "b", "0.5"], ["c", "", "1"]]),  # all text
        ('a\tx\t1\n""\ty\t2\n', [["a", "x", "1"], ["", "y", "2"]]),  # nothing, as polars and DuckDB write it
        ('"a, b"\tx\t1\nc\t"d, e"\t2\n', [["a, b", "x", "1"], ["c", "d, e", "2"]]),  # what has a comma, as Excel
        ('"a\rb"\tx\t1\nc\td\t2\n', [["a\rb", "x", "1"], ["c", "d", "2"]]),
        ('"' + "a\n" * 150 + '"\tx\t1\n', [["a\n" * 150, "x", "1"]]),
        ('x\t"a\nb"\t1\t\t\n', [["x", "a\nb", "1"]]),
        ('"a, b"\tx, y\t1\n', [['"a, b"', "x, y", "1"]]),
    ):
        (tmp_path / "a.tsv").write_bytes(b"sent0\tsent1\tscore\n" + content.encode())
        assert fields(tmp_path / "a.tsv")[1] == expected
    for content, expected in (  # a .csv of another separator is quoted, unless it cannot be
        ('"a"|b\nc|d\n', [["a", "b"], ["c", "d"]]),
        ('"I went home.|1\nIt was late."|2\nx|3\n', [['"I went home.', "1"], ['It was late."', "2"], ["x", "3"]]),
        ('The "old" mill|1\n', [['The "old" mill', "1"]]),
    ):
        (tmp_path / "a.csv").write_text("text|id\n" + content)
        assert fields(tmp_path / "a.csv")[1] == expected
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")):
        path = tmp_path / f"{name}.csv"
        path.write_text(separator.join(["sent0", "sent1", "hard_neg"]) + "\n" + separator.join("apn") + "\n")
        with pytest.warns(UserWarning, match=f"{path.name}: fields are separated by {name}") as said:
            assert read_examples(str(path)).columns == (["a"], ["p"], ["n"])
            assert list(SentenceFile(path, "sent1")) == ["p"]
        assert len(said) == 1
    for name, content, columns in (
        ("a.csv", "sep=;\nsent0;sent1\na, b;p\n", (["a, b"], ["p"])),  # Excel's own line
        ("a.csv", '\ufeffsent0;sent1\r\n"a; b";p\r\n', (["a; b"], ["p"])),
        ("a.csv", "sent0,sent1\na,p,,\n", (["a"], ["p"])),
        ("a.tsv", 'sent0,sent1\na,"p, q"\n', (["a"], ["p, q"])),
        ("a.csv", "text\na; b\nc | d\n", (["a; b", "c | d"],)),
        ("a.csv", '"text; cleaned"\na\n', (["a"],)),
        ("a.csv", f"text\n{'a ' * 200_000}\n", (["a " * 199_999 + "a"],)),
        ("a.tsv", f"text\n{'a ' * 200_000}\n", (["a " * 199_999 + "a"],)),
    ):
        assert read_examples(write(name, content)).columns == columns
    for name, content, parts in (
        ("a.csv", "sent0,sent1\na\rb,c\n", ["line 2", "a field has a carriage return in it"]),
        ("a.csv", "sent0;sent1\na;b;c\n", ["line 2", "3 columns, but the first line has 2"]),
        ("a.tsv", "sent0\tsent1\na\tb\tc\n", ["line 2", "3 columns, but the first line has 2"]),
        ("a.csv", 'sent0,sent1\n"a\nb",c\nd\n', ["line 4", "1 columns, but the first line has 2"]),
        ("a.csv", 'sent0;sent1\n"a;b\n', ["line 2", "unexpected end of data"]),
        ("a.csv", 'sent0,sent1\n"a" b,c\n', ["line 2", "expected after"]),
        ("a.csv", "sent0\n" + "a" * (1 << 24) + "b\n", ["line 2", "field larger than field limit"]),
    ):
        refused(write(name, content), name, *parts)


@pytest.mark.slow
def test_a_mark_in_a_long_text_takes_no_time(write):
    text = "word " * 200_000 + 'said "stop" to'
    assert fields(Path(write("a.tsv", f"sent0\tsent1\n{text}\tb\n")))[1] == [[text, "b"]]


def test_the_files_of_senteval_have_no_quoted_fields(senteval):
    files = [path for name in ("ST[SB]*/**/*.csv", "ST[SB]*/**/*.txt", "[SM]*C*/*.txt") for path in senteval.glob(name)]
    assert len(files) > 20
    for path in files:
        lines = path.read_text("utf-8-sig").removesuffix("\n").split("\n")
        assert [row.fields for row in read_tabs(path)] == [line.split("\t") if line.strip() else [""] for line in lines]
