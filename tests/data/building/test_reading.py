from collections import Counter

from support.data import raises

from simcse_jax.data.building.reading import Tally, draw, read_columns, resolve, sentence


def test_files_that_match_are_read_in_order_by_the_first_set_of_columns_a_sentence_a_line(tmp_path):
    for name in ("b.x", "a.x", "c.y", "d.z", "._a.x", "._c.y", ".DS_Store"):  # as a Mac leaves them
        (tmp_path / name).write_text("")
    assert [path.name for path in resolve([str(tmp_path)], ["*.y", "*.x"])] == ["c.y", "a.x", "b.x"]
    assert resolve([str(tmp_path / "d.z")], ["*.y"]) == [tmp_path / "d.z"]
    raises("no such file or folder", resolve, [str(tmp_path / "none")], ["*.w"])
    raises("has no file *.w or *.v", resolve, [str(tmp_path)], ["*.w", "*.v"])
    two, other, one = (tmp_path / name for name in ("2_a.y", "1_b.y", "1_a.y"))
    for path in (two, other, one):
        path.touch()
    folder = str(tmp_path)
    assert resolve(["hf:a", folder, "hf:a"], ["{split}_*.y"], ["2", "1", "2"]) == ["hf:a", two, one, other]
    assert resolve([str(one), str(two)], ["*"]) == [one, two]
    assert len(resolve([folder, f"{folder}/.", str(one)], ["*.y"])) == 4  # each once
    raises("has no file 3_*.y", resolve, [folder], ["{split}_*.y"], ["1", "3"])
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n")
    rows = read_columns(tmp_path / "a.csv", [("w", "x"), ("z", "x")])
    assert [(row.where, row.fields) for row in rows] == [(f"{tmp_path}/a.csv: line 2", ["3", "1"])]
    raises("a.csv: its columns are x, y, z; it must have w or v", read_columns, tmp_path / "a.csv", [("w",), ("v",)])
    (tmp_path / "a.doc").touch()
    raises("a.doc: unknown file type '.doc'", read_columns, tmp_path / "a.doc", [("w",)])
    assert sentence("  a  b \r\n c\u2028d ", "x") == "a  b c d" and sentence(None, "x") == ""
    assert len(sentence("a" + " " * 500_000 + "b", "x")) == 500_002  # many minutes, if each space began a search
    raises("x holds 3, not text", sentence, 3, "x")


def drawn(sizes, count, seed, tally=None, read=None):
    """A sample of units of so many sentences, which note that they were read."""

    def unit(number, size):
        if read is not None:
            read.append(number)
        return [f"{number}.{place}" for place in range(size)]

    units = (lambda number=number, size=size: unit(number, size) for number, size in enumerate(sizes))
    return draw(units, count, seed, tally or Tally("pages"))


def test_what_is_not_dropped_is_used_and_a_sample_has_the_count_in_order(monkeypatch, capsys):
    tally = Tally("pairs")
    tally.read = 2000
    tally.dropped.update({"neutral": 5, "blank": 2, "none": 0})
    tally.notes.append("a note")
    lines = ["2,000 pairs read, 1,993 used", "  5 dropped: neutral", "  2 dropped: blank", "a note"]
    assert tally.lines() == lines
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    tally = Tally("pages")
    for _ in range(250):
        tally.see()
    assert capsys.readouterr().err == "100 pages read\n200 pages read\n" and tally.read == 250
    read, tally, sizes = [], Tally("pages"), [1, 2, 3, 0, 4] * 100
    tally.read = 500
    found = drawn(sizes, 50, 7, tally, read)
    numbers = [float(sentence.split(".")[0]) for unit in found for sentence in unit]
    assert len(numbers) == 50 and numbers == sorted(numbers)
    cut = [unit for unit in found if len(unit) != sizes[int(unit[0].split(".")[0])]]
    assert len(cut) <= 1 and len(read) < 250  # most units cannot be among the sample, and are not read
    assert tally.used == len(found) + sum(number % 5 == 3 for number in read)  # and empty ones
    assert found == drawn(sizes, 50, 7) != drawn(sizes, 50, 8)
    assert drawn([1, 2], 9, 1) == [["0.0"], ["1.0", "1.1"]] and drawn([], 9, 1) == []  # too few: all
    counts = Counter(unit[0] for seed in range(400) for unit in drawn([1] * 10, 3, seed))
    assert sum(counts.values()) == 1200 and all(85 < counts[f"{n}.0"] < 155 for n in range(10))
