import json

import pyarrow.parquet
import pytest
from support.data import raises

from simcse_jax.bulk.mining.pairs import Pair, PairFile, PairFiles, Positives, text_hash
from simcse_jax.data.identity import hash_file

ROWS = [("a", "p", 3), ("b", "q", 4), ("", "r", 0), ("a", "s", 5)]
PAIRS = [Pair(0, "a", "p", (3,)), Pair(1, "b", "q", (4,)), None, Pair(3, "a", "s", (5,))]


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def read(path, content, **columns):
    path.write_text(content)
    file = PairFile(str(path), columns)
    return file, list(file.read())


ONE, TWO = {"anchor": "a", "positive": "p"}, {"anchor": "b", "positive": "q"}


def test_columns_are_chosen_by_first_rows_and_what_is_no_file_of_pairs_is_named(tmp_path):
    for name, content, message in (
        ("a.txt", "a\n", "must be a .csv"),
        ("a.csv", "text\na\n", "one column of sentences"),
        ("a.csv", "anchor,positive,positive_row\na,p,-1\n", "line 2: the field 'positive_row' holds '-1'"),
        ("a.csv", f"anchor,positive,positive_row\na,p,{'1' * 5000}\n", "line 2: the field 'positive_row' holds '111"),
        ("a.jsonl", lines(ONE | {"positive_row": 2**63}), "line 1: the field 'positive_row' holds 9223372036854"),
        ("a.jsonl", lines(ONE, TWO | {"positive_row": 4}), "line 1: the field 'positive_row' is missing"),
        ("a.jsonl", lines(ONE | {"positive_row": 4}, TWO), "line 2: the field 'positive_row' is missing"),
    ):
        raises(message, read, tmp_path / name, content)
    raises("no such file", PairFile, str(tmp_path / "none.csv"), {})
    _, found = read(tmp_path / "a.csv", "asked,said\nwho,me\nwhen,1969\nhow many,2\n")
    assert found[1:] == [Pair(1, "when", "1969"), Pair(2, "how many", "2")]
    assert list(PairFiles(str(tmp_path / "a.csv"), {}).read(1)) == found[1:]
    _, quoted = read(tmp_path / "c.tsv", 'sent0\tsent1\n"say ""no"""\tb\n')
    assert quoted == [Pair(0, 'say "no"', "b")]
    raises("'number' holds numbers", read, tmp_path / "b.csv", "number,asked\n17,who\n18,when\n")
    positives = Positives(iter(PAIRS))
    assert (positives.rows, positives.pairs) == (4, 3)
    hashes, rows = positives.of("a")
    assert ([text_hash(text) in hashes for text in (" p", "q", "s", "a")], rows) == ([True, False, True, False], {3, 5})
    assert positives.of("nothing") == (set(), set()) and positives.named().tolist() == [3, 4, 5]
    assert not len(Positives(iter([Pair(0, "a", "p")])).named())


def test_pairs_are_read_from_any_row_of_any_file_or_several_each_positive_of_a_list(tmp_path):
    names = ("anchor", "positive", "positive_row")
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *(f"{a},{p},{n}" for a, p, n in ROWS)]) + "\n")
    records = [dict(zip(names, row, strict=True)) for row in ROWS]
    (tmp_path / "a.jsonl").write_text(lines(*records))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    for kind in ("csv", "jsonl", "parquet"):
        file = PairFiles(str(tmp_path / f"a.{kind}"), {})
        assert (list(file.read()), list(file.read(2)), file.has_rows) == (PAIRS, PAIRS[2:], True)
    _, found = read(tmp_path / "blank.jsonl", lines(records[0]) + "\n" + lines(records[1]))
    assert found == [PAIRS[0], None, PAIRS[1]._replace(row=2)]
    file, found = read(tmp_path / "b.csv", "question,answer,id\nx,y,1\n", anchor="question", positive="answer")
    assert (found, file.has_rows) == ([Pair(0, "x", "y")], False)
    _, found = read(tmp_path / "c.csv", "positive_row,question,answer,anchor_row\n1,x,y,0\n")
    assert found == [Pair(0, "x", "y", (0, 1))]
    rows = [{"query": "a", "pos": ["p", "q"], "neg": ["n"]}, {"query": "b", "pos": []}, {"query": "c", "pos": ["r"]}]
    for suffix in ("jsonl", "parquet"):
        path = tmp_path / f"a.{suffix}"
        path.write_text(lines(*rows))
        if suffix == "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        pairs = PairFiles(str(path), {})
        expected = [Pair(0, "a", "p"), Pair(1, "a", "q"), None, Pair(3, "c", "r")]
        assert [list(pairs.read(first)) for first in (0, 1, 3)] == [expected, expected[1:], expected[3:]]
        content = "sentence1,sentence2,label\na,p,1\nb,q,0\n"
        with pytest.warns(UserWarning, match="--pairs .*a.csv: its column 'label' is not read"):
            assert len(read(tmp_path / "a.csv", content)[1]) == 2
        read(tmp_path / "a.csv", content, anchor="sentence1", positive="sentence2")  # on purpose
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "a.csv").write_text("anchor,positive\na,b\n,\n")
    (folder / "b.jsonl").write_text(lines({"anchor": "c", "positive": "d"}, {"anchor": "e", "positive": "f"}))
    pairs = PairFiles(str(folder), {})
    expected = [Pair(0, "a", "b"), None, Pair(2, "c", "d"), Pair(3, "e", "f")]
    assert list(pairs.read()) == expected and list(pairs.read(2)) == expected[2:]
    assert list(PairFiles(str(folder / "*.jsonl"), {}).read()) == [Pair(0, "c", "d"), Pair(1, "e", "f")]
    before, alone = pairs.fingerprint(), PairFiles(str(folder / "a.csv"), {}).fingerprint()
    assert alone == hash_file(folder / "a.csv")
    (folder / "b.jsonl").write_text(lines({"anchor": "c", "positive": "x"}))
    assert pairs.fingerprint() != before
    (folder / "c.csv").write_text("anchor,positive,positive_row\na,b,0\n")
    raises("the column positive_row is in one alone", PairFiles, str(folder), {})
