import pytest

from simcse_jax.data.building.tables import columns, files_of, is_dataset, open_table, resolve
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
