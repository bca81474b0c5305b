"""Standard output and standard error (test_command_line.py has a full disk and an encoding)."""

import io
import os
import subprocess
import sys

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host import streams

CLOSED = """
import os
from simcse_jax.host import streams
streams.prepare()
number = os.open(os.devnull, os.O_RDWR)
streams.say("to nobody")
os._exit(number > 2)
"""


def test_characters_outside_the_encoding_are_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    streams.prepare()
    print("é \udcff", flush=True)
    assert stream.buffer.getvalue() == b"\\xe9 \\udcff\n"


def test_lines_that_are_typed(monkeypatch, capsys):
    given = io.BytesIO("\ufeffa\r\n\n\ufeffé 🎸\n".encode() + b"caf\xe9\nb\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given, "ascii"))
    found = streams.read_typed_lines("query: ")
    assert [next(found) for _ in range(3)] == ["a", "", "\ufeffé 🎸"]  # a mark within is a character
    with pytest.raises(UserError, match=r"^line 4 of standard input is not UTF-8 \(byte 0xe9\)"):
        next(found)
    assert capsys.readouterr().err == ""  # no keyboard
    monkeypatch.setattr(sys, "stdin", None)
    assert [*streams.read_typed_lines("query: ")] == []


def test_arguments_that_are_text():
    assert streams.argument("é 🎸") == "é 🎸"
    with pytest.raises(ValueError, match=r"^'caf\\udce9' is not UTF-8 \(byte 0xe9\); type it in UTF-8"):
        streams.argument(b"caf\xe9".decode(errors="surrogateescape"))


def test_no_file_gets_the_number_of_a_closed_stream():
    done = subprocess.run(["bash", "-c", '"$0" -c "$1" 0<&- 2>&-', sys.executable, CLOSED], capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")


def test_what_a_full_stream_holds_is_discarded_after_the_first_error(monkeypatch):
    with open("/dev/full", "w", buffering=1024) as full:
        monkeypatch.setattr(sys, "stdout", full)
        print("x")
        with pytest.raises(UserError, match="standard output: No space"):
            streams.flush()
        streams.flush()
        assert os.readlink(f"/proc/self/fd/{full.fileno()}") == os.devnull


def test_standard_error_may_be_full(monkeypatch):
    with open("/dev/full", "w", buffering=1024) as full:
        monkeypatch.setattr(sys, "stderr", full)
        streams.say("x")


def test_a_style_is_for_a_terminal_that_shows_it_unless_the_user_wants_none(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert streams.paint("error:", streams.RED, terminal) == "\033[31merror:\033[0m"
    assert [streams.paint("error:", streams.RED, stream) for stream in (io.StringIO(), None)] == ["error:"] * 2
    for name, value in {"NO_COLOR": "1", "TERM": "dumb"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert streams.paint("error:", streams.RED, terminal) == "error:"
