import pytest

from simcse_jax.data.rows import MISSING, Lines, Place, is_number, is_text, open_text, read_text, size_and_time
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


def test_text_is_read_without_white_space_around_it_and_nothing_else_is_text():
    assert [read_text(value, "here") for value in (" a b ", "", None)] == ["a b", "", ""]
    for value, said in ((MISSING, "is missing"), (3, "holds 3, not text"), ("a\ud83d", "holds a broken character")):
        with pytest.raises(UserError, match=f"here {said}"):
            read_text(value, "here")


def test_half_of_a_character_is_not_text():
    assert is_text("\U0001f600") and not is_text("a\ud83d")


@pytest.mark.parametrize("text", ["7", "-0.5", "4.25e-1", "1/2", "0,5", "50%", "True", "false"])
def test_numbers(text):
    assert is_number(text) and not is_number(f"{text} cats")
