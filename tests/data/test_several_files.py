"""Files, folders and patterns."""

import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.several_files import files_of
from simcse_jax.errors import UserError


def test_names_of_a_folder_are_sorted_and_hidden_ones_left_out(tmp_path):
    for name in ("b.csv", "a.txt", ".hidden.txt", "._a.txt", "_SUCCESS", "_part.txt", "README.md", "c[1].txt"):
        (tmp_path / name).write_text("a cat\n")
    (tmp_path / "more.txt").mkdir()
    inside = [f"{tmp_path}/{name}" for name in ("a.txt", "b.csv", "c[1].txt")]
    assert files_of(str(tmp_path)) == files_of(f"{tmp_path}/") == inside
    assert files_of(f"{tmp_path}/*.csv") == inside[1:2]
    assert files_of(f"{tmp_path}/_*.txt") == [f"{tmp_path}/_part.txt"]  # asked for by name
    assert files_of(inside[2]) == inside[2:]  # a file, although its name looks like a pattern
    assert files_of("no/such.txt") == ["no/such.txt"]


def test_a_folder_or_a_pattern_without_files_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("text")
    with pytest.raises(UserError, match=r"a folder without \.txt, \.csv"):
        files_of(str(tmp_path))
    with pytest.raises(UserError, match="no file matches"):
        files_of(f"{tmp_path}/*.txt")


@NEEDS_GCSFS
def test_a_folder_of_a_bucket(store):
    for name in ("text/b.txt", "text/a.txt", "text/_SUCCESS"):
        store.put(name, b"a cat\n")
    assert files_of("gs://bucket/text") == files_of("gs://bucket/text/*.txt")
