import pytest

from simcse_jax.data.lines import Lines, Place, open_text, size_and_time
from simcse_jax.errors import UserError


def test_lines_are_read_from_a_place_on_without_their_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree\rfour")
    assert list(open_text(path)) == ["one", "two", "three\rfour"]
    lines = Lines(path)
    assert (next(iter(lines)), lines.place) == ("one", Place(1, 8))
    assert list(Lines(path, Place(1, 8))) == ["two", "three\rfour"]


def test_a_missing_file_is_named(tmp_path):
    for read in (size_and_time, lambda path: list(open_text(path))):
        with pytest.raises(UserError, match=r"a\.txt: cannot be read: (?i:no such file)"):
            read(tmp_path / "a.txt")
