from collections import Counter

import pytest

from simcse_jax.data.building.reading import Tally, columns, draw, files_of, is_dataset, open_table, resolve, sentence
from simcse_jax.data.rows import MISSING
from simcse_jax.errors import UserError


def test_a_folder_s_files_are_those_that_match_in_order(tmp_path):
    for name in ("b.x", "a.x", "c.y", "d.z", "._a.x", "._c.y", ".DS_Store"):  # as a Mac leaves them
        (tmp_path / name).write_text("")
    assert [path.name for path in files_of(str(tmp_path), ["*.y", "*.x"])] == ["c.y", "a.x", "b.x"]
    assert files_of(str(tmp_path / "d.z"), ["*.y"]) == [tmp_path / "d.z"]
    for name, part in (("none", "no such file or folder"), ("", r"has no file \*.w or \*.v")):
        with pytest.raises(UserError, match=part):
            files_of(str(tmp_path / name), ["*.w", "*.v"])


def test_sources_are_files_of_every_split_in_order_each_once(tmp_path):
    for name in ("x/1_b.y", "x/1_a.y", "x/2_a.y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    folder, (two, other, one) = str(tmp_path / "x"), [tmp_path / "x" / name for name in ("2_a.y", "1_b.y", "1_a.y")]
    assert resolve(["hf:a", folder], ["{split}_*.y"], ["2", "1", "2"]) == ["hf:a", two, one, other]
    assert resolve([str(one), str(two)], ["*"]) == [one, two]
    for again in ([folder, f"{folder}/."], [folder, str(one)], ["hf:a", "hf:a"]):
        with pytest.raises(UserError, match=r"is given twice; name it once"):
            resolve(again, ["*.y"])
    with pytest.raises(UserError, match=r"has no file 3_\*\.y"):
        resolve([folder], ["{split}_*.y"], ["1", "3"])


def test_the_first_set_of_columns_that_is_there_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n")
    rows = columns(open_table(tmp_path / "a.csv"), [("w", "x"), ("z", "x")], "a.csv")
    assert [(row.where, row.fields) for row in rows] == [(f"{tmp_path}/a.csv: line 2", ["3", "1"])]
    with pytest.raises(UserError, match=r"a\.csv: its columns are x, y, z; it must have w or v"):
        columns(open_table(tmp_path / "a.csv"), [("w",), ("v",)], "a.csv")
    with pytest.raises(UserError, match=r"a\.doc: unknown file type '\.doc'"):
        open_table(tmp_path / "a.doc")
    assert is_dataset("hf:x") and is_dataset("tfds:x") and not is_dataset("h/x")


def test_what_is_not_dropped_is_used():
    tally = Tally("pairs")
    tally.read = 2000
    tally.drop("neutral", 3)
    tally.drop("blank")
    tally.drop("neutral", 2)
    tally.notes.append("a note")
    lines = ["2,000 pairs read, 1,994 used", "  5 dropped: neutral", "  1 dropped: blank", "a note"]
    assert tally.lines() == lines


def test_a_sentence_is_one_line_without_white_space_around_it():
    assert sentence("  a  b \r\n c\u2028d ", "x") == "a  b c d"
    assert sentence(None, "x") == ""
    assert len(sentence("a" + " " * 500_000 + "b", "x")) == 500_002  # many minutes, if each space began a search
    for wrong, part in (
        (MISSING, "x is missing"),
        (3, "x holds 3, not text"),
        ("\ud800", r"x holds a broken character \(U\+D800 alone\); remove or replace it"),
        ("a\0", "x holds a zero byte; remove it"),
    ):
        with pytest.raises(UserError, match=part):
            sentence(wrong, "x")


def test_long_work_says_how_much_was_read(monkeypatch, capsys):
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    tally = Tally("pages")
    for _ in range(250):
        tally.see()
    assert capsys.readouterr().err == "100 pages read\n200 pages read\n" and tally.read == 250


def units(sizes, read):
    """Units of so many sentences, which note that they were read."""

    def unit(number, size):
        read.append(number)
        return [f"{number}.{place}" for place in range(size)]

    for number, size in enumerate(sizes):
        yield lambda number=number, size=size: unit(number, size)


def test_a_sample_has_the_count_in_the_order_of_the_stream():
    read: list[int] = []
    tally = Tally("pages")
    tally.read = 500
    found = draw(units([1, 2, 3, 0, 4] * 100, read), 50, 7, tally)
    flat = [sentence for unit in found for sentence in unit]
    assert len(flat) == 50 and [float(s.split(".")[0]) for s in flat] == sorted(float(s.split(".")[0]) for s in flat)
    cut = [unit for unit in found if len(unit) != [1, 2, 3, 0, 4][int(unit[0].split(".")[0]) % 5]]
    assert len(cut) <= 1 and len(read) < 250  # most units cannot be among the sample, and are not read
    empty = sum(number % 5 == 3 for number in read)
    assert tally.used == len(found) + empty
    assert found == draw(units([1, 2, 3, 0, 4] * 100, []), 50, 7, Tally("pages"))
    assert found != draw(units([1, 2, 3, 0, 4] * 100, []), 50, 8, Tally("pages"))


def test_each_unit_is_as_likely_as_another():
    counts = Counter(unit[0] for seed in range(400) for unit in draw(units([1] * 10, []), 3, seed, Tally("sentences")))
    assert sum(counts.values()) == 1200 and all(85 < counts[f"{n}.0"] < 155 for n in range(10))


def test_too_few_are_all_taken():
    assert draw(units([1, 2], []), 9, 1, Tally("pages")) == [["0.0"], ["1.0", "1.1"]]
    assert draw(units([], []), 9, 1, Tally("pages")) == []
