from support.data import raises

from simcse_jax.data.rows import MISSING, Lines, Place, is_number, is_text, open_text, read_text, size_and_time


def test_lines_of_utf_8_are_read_as_texts_and_numbers_from_a_place_on_and_other_files_named(tmp_path):
    assert [read_text(value, "here") for value in (" a b ", "", None)] == ["a b", "", ""]
    for value, said in ((MISSING, "is missing"), (3, "holds 3, not text"), ("a\ud83d", "holds a broken character")):
        raises(f"here {said}", read_text, value, "here")
    assert is_text("\U0001f600") and not is_text("a\ud83d")
    for text in ("7", "-0.5", "4.25e-1", "1/2", "0,5", "50%", "True", "false"):
        assert is_number(text) and not is_number(f"{text} cats")
    for read in (size_and_time, lambda path: list(open_text(path))):
        raises("a.txt: cannot be read: No such file", read, tmp_path / "a.txt")
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree\rfour")
    assert list(open_text(path)) == ["one", "two", "three\rfour"]
    lines = Lines(path)
    assert (next(iter(lines)), lines.place) == ("one", Place(1, 8))
    assert list(Lines(path, Place(1, 8))) == ["two", "three\rfour"]
    path.write_bytes(b"one\ntwo\n\xff\n")
    raises("a.txt: line 3 is not UTF-8 (byte 0xff)", list, Lines(path, Place(1, 4)))
    path.write_bytes("one\n“naïve”\n".encode("cp1252"))
    raises("a.txt: line 2 is not UTF-8 (byte 0x93); if it should read '“naïve”'", list, Lines(path))
    for content, said in (
        ("gut\nschön\n".encode("latin-1"), ": line 2 is not UTF-8 (byte 0xf6)"),
        ("the cat\nsat\n".encode("utf-16-le"), ": line 1 has a zero byte, so it is not UTF-8 text"),
        ("the cat\n".encode("utf-16-be"), ": line 1 has a zero byte, so it is not UTF-8 text"),
        ("the cat\n".encode("utf-32-be"), ": line 1 has a zero byte, so it is not UTF-8 text"),
        (b"one\ntwo, a zero \0 byte\n", ": line 2 has a zero byte, so it is not UTF-8 text"),
        ("the cat\n".encode("utf-16"), ": is UTF-16, not UTF-8"),
        ("the cat\n".encode("utf-32"), ": is UTF-16, not UTF-8"),
        (b"\x1f\x8b\x08\0", ": is gzip, not UTF-8 text"),
        (b"PK\x03\x04", ": is zip, not UTF-8 text"),
        (b"one\rtwo\r", ": its lines end in CR alone"),
    ):
        (tmp_path / "a.txt").write_bytes(content)
        raises(f"a.txt{said}", list, open_text(tmp_path / "a.txt"))
