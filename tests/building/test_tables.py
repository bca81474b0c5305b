import pytest

from simcse_jax.building.tables import columns, files_of, is_dataset, open_table
from simcse_jax.errors import UserError


def test_a_folder_s_files_are_those_that_match_in_order(tmp_path):
    for name in ("b.x", "a.x", "c.y", "d.z"):
        (tmp_path / name).write_text("")
    assert [path.name for path in files_of(str(tmp_path), ["*.y", "*.x"])] == ["c.y", "a.x", "b.x"]
    assert files_of(str(tmp_path / "d.z"), ["*.y"]) == [tmp_path / "d.z"]
    for name, part in (("none", "no such file or folder"), ("", r"has no file \*.w or \*.v")):
        with pytest.raises(UserError, match=part):
            files_of(str(tmp_path / name), ["*.w", "*.v"])


def test_the_first_set_of_columns_that_is_there_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n")
    rows = columns(open_table(tmp_path / "a.csv"), [("w", "x"), ("z", "x")], "a.csv")
    assert [(row.where, row.fields) for row in rows] == [(f"{tmp_path}/a.csv: line 2", ["3", "1"])]
    with pytest.raises(UserError, match=r"a\.csv: its columns are x, y, z; it must have w or v"):
        columns(open_table(tmp_path / "a.csv"), [("w",), ("v",)], "a.csv")
    with pytest.raises(UserError, match=r"a\.doc: unknown file type '\.doc'"):
        open_table(tmp_path / "a.doc")
    assert is_dataset("hf:x") and is_dataset("tfds:x") and not is_dataset("h/x")
