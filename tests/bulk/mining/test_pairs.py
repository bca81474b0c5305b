import json
import sqlite3

import pyarrow
import pyarrow.parquet
import pytest

from simcse_jax.bulk.mining.pairs import Pair, PairFile, PairFiles, Positives, text_hash
from simcse_jax.data.corpus.shared_folder import hash_file
from simcse_jax.errors import UserError

ROWS = [("a", "p", 3), ("b", "q", 4), ("", "r", 0), ("a", "s", 5)]
PAIRS = [Pair(0, "a", "p", (3,)), Pair(1, "b", "q", (4,)), None, Pair(3, "a", "s", (5,))]


def test_pairs_are_read_from_any_row_of_any_file(tmp_path):
    names = ("anchor", "positive", "positive_row")
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *(f"{a},{p},{n}" for a, p, n in ROWS)]) + "\n")
    records = [dict(zip(names, row, strict=True)) for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    for kind in ("csv", "jsonl", "parquet"):
        file = PairFiles(str(tmp_path / f"a.{kind}"), {})
        assert (list(file.read()), list(file.read(2)), file.has_rows) == (PAIRS, PAIRS[2:], True)
    (tmp_path / "blank.jsonl").write_text(json.dumps(records[0]) + "\n\n" + json.dumps(records[1]) + "\n")
    assert list(PairFile(str(tmp_path / "blank.jsonl"), {}).read()) == [PAIRS[0], None, PAIRS[1]._replace(row=2)]
    (tmp_path / "b.csv").write_text("question,answer,id\nx,y,1\n")
    named = PairFile(str(tmp_path / "b.csv"), {"anchor": "question", "positive": "answer"})
    assert (list(named.read()), named.has_rows) == ([Pair(0, "x", "y")], False)
    (tmp_path / "c.csv").write_text("positive_row,question,answer,anchor_row\n1,x,y,0\n")
    assert list(PairFile(str(tmp_path / "c.csv"), {}).read()) == [Pair(0, "x", "y", (0, 1))]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_each_positive_of_a_list_is_a_pair(tmp_path, suffix):
    rows = [{"query": "a", "pos": ["p", "q"], "neg": ["n"]}, {"query": "b", "pos": []}, {"query": "c", "pos": ["r"]}]
    path = tmp_path / f"a.{suffix}"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    pairs = PairFiles(str(path), {})
    expected = [Pair(0, "a", "p"), Pair(1, "a", "q"), None, Pair(3, "c", "r")]
    assert [list(pairs.read(first)) for first in (0, 1, 3)] == [expected, expected[1:], expected[3:]]
    (tmp_path / "b.jsonl").write_text(json.dumps(rows[0]) + '\n{"query": "b", "pos": "p"}\n')
    with pytest.raises(UserError, match="line 2: the field 'pos' is 'p', but that of the first row is a list"):
        list(PairFile(str(tmp_path / "b.jsonl"), {}).read())


def test_a_column_of_labels_that_is_not_read_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("sentence1,sentence2,label\na,p,1\nb,q,0\n")
    with pytest.warns(UserWarning, match="--pairs .*a.csv: its column 'label' is not read, so every pair counts as"):
        assert len(list(PairFile(str(tmp_path / "a.csv"), {}).read())) == 2
    PairFile(str(tmp_path / "a.csv"), {"anchor": "sentence1", "positive": "sentence2"})  # on purpose


def test_only_the_first_rows_say_whether_a_column_holds_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("asked,said\nwho,me\nwhen,1969\nhow many,2\n")
    pairs = PairFiles(str(tmp_path / "a.csv"), {})
    assert list(pairs.read(1)) == list(pairs.read())[1:] == [Pair(1, "when", "1969"), Pair(2, "how many", "2")]
    assert pairs.reading == {"columns of --pairs": ["asked", "said"]}
    (tmp_path / "c.tsv").write_text('sent0\tsent1\n"say ""no"""\tb\n')
    assert PairFile(str(tmp_path / "c.tsv"), {}).reading == {"separator of --pairs": "tabs, quoted"}
    (tmp_path / "c.tsv").write_text("sent0\tsent1\na\tb\n")
    assert PairFile(str(tmp_path / "c.tsv"), {}).reading == {}
    (tmp_path / "b.csv").write_text("number,asked\n17,who\n18,when\n")
    with pytest.raises(UserError, match=r"the field .number. holds numbers, .* 17; which columns"):
        list(PairFile(str(tmp_path / "b.csv"), {}).read())


def test_an_anchor_has_the_positives_of_all_its_pairs():
    positives = Positives(iter(PAIRS))
    assert (positives.rows, positives.pairs) == (4, 3)
    hashes, rows = positives.of("a")
    assert ([text_hash(text) in hashes for text in (" p", "q", "s", "a")], rows) == ([True, False, True, False], {3, 5})
    assert positives.of("nothing") == (set(), set()) and positives.named().tolist() == [3, 4, 5]
    assert not len(Positives(iter([Pair(0, "a", "p")])).named())


def test_a_full_disk_of_temporary_files_is_named(monkeypatch):
    connect = sqlite3.connect

    def small(name):
        made = connect(name)
        made.execute("PRAGMA max_page_count = 3")
        return made

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(UserError, match=r"--pairs: .* temporary file: database or disk is full; .* TMPDIR"):
        Positives(Pair(row, f"a {row}", "p") for row in range(1000))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "a\n", "must be a .csv"),
        ("a.csv", "text\na\n", "one column of sentences"),
        ("a.csv", "w,x,y,z\n1,2,3,4\n", "which columns"),
        ("a.csv", "anchor,positive,positive_row\na,p,-1\n", "line 2: the field 'positive_row' holds '-1'"),
        ("a.csv", f"anchor,positive,positive_row\na,p,{'1' * 5000}\n", "line 2: the field 'positive_row' holds '111"),
        ("a.jsonl", '{"anchor": "a", "positive": "p", "positive_row": 9223372036854775808}\n', "holds 9223372036854"),
        ("a.jsonl", '{"anchor": "a", "positive": 3}\n', "line 1: the field 'positive' holds 3, not text"),
        (
            "a.jsonl",
            '{"anchor": "a", "positive": "p"}\n{"anchor": "b", "positive": "q", "positive_row": 4}\n',
            "line 2: has the field 'positive_row', which the first line lacks",
        ),
        (
            "a.jsonl",
            '{"anchor": "a", "positive": "p", "positive_row": 4}\n{"anchor": "b", "positive": "q"}\n',
            "line 2: the field 'positive_row' is missing; give it in every line, or in none",
        ),
    ],
)
def test_what_is_no_file_of_pairs_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        list(PairFile(str(tmp_path / name), {}).read())
    with pytest.raises(UserError, match="no such file"):
        PairFile(str(tmp_path / "none.csv"), {})


def test_pairs_of_several_files_follow_one_another(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "a.csv").write_text("anchor,positive\na,b\n,\n")
    (folder / "b.jsonl").write_text('{"anchor": "c", "positive": "d"}\n{"anchor": "e", "positive": "f"}\n')
    pairs = PairFiles(str(folder), {})
    expected = [Pair(0, "a", "b"), None, Pair(2, "c", "d"), Pair(3, "e", "f")]
    assert list(pairs.read()) == expected and list(pairs.read(2)) == expected[2:]
    assert list(PairFiles(str(folder / "*.jsonl"), {}).read()) == [Pair(0, "c", "d"), Pair(1, "e", "f")]
    before, alone = pairs.fingerprint(), PairFiles(str(folder / "a.csv"), {}).fingerprint()
    assert alone == hash_file(folder / "a.csv")  # as of the one file that earlier versions took
    (folder / "b.jsonl").write_text('{"anchor": "c", "positive": "x"}\n')
    assert pairs.fingerprint() != before
    (folder / "c.csv").write_text("anchor,positive,positive_row\na,b,0\n")
    with pytest.raises(UserError, match=r"c\.csv and .*a\.csv: the column positive_row is in one alone"):
        PairFiles(str(folder), {})
