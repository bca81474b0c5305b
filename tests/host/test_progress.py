import io
import sys

import pytest

from simcse_jax.host import progress
from simcse_jax.host.progress import Progress, doing, shown_meanwhile


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    """Puts a stream in place of standard error. The test itself calls it: pytest sets its own after the fixtures."""
    monkeypatch.setattr(progress, "DELAY", 0)  # bars appear at once
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)  # every step is worth a line

    def replace(stream):
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return replace


def test_a_terminal_has_a_bar_with_title_and_note_and_one_within_vanishes(stderr):
    terminal = stderr(Terminal())
    with doing("MR"), Progress(4) as bar:
        bar._bar.mininterval = 0
        bar.advance(1)
        bar.advance(2, lambda: "loss 0.5")
        assert "3/4" in terminal.getvalue() and "loss 0.5" in terminal.getvalue()
        assert "MR: " in terminal.getvalue() and " sentences" in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")  # the outermost bar stays
    terminal = stderr(Terminal())
    with Progress(2, "steps") as outer:
        outer.advance()
        with Progress(5) as inner:
            inner.advance(5)
    assert "sentences" not in terminal.getvalue().rsplit("\r", 1)[1]


def test_a_log_has_lines_without_carriage_returns(stderr):
    log = stderr(io.StringIO())
    with doing("STS12"), Progress(2000, "steps", done=500) as bar:
        bar.advance(500, lambda: "loss 0.5")
    (line,) = log.getvalue().splitlines()
    assert line.startswith("STS12: 1,000 of 2,000 steps, ") and line.endswith(" left, loss 0.5")
    assert "\r" not in log.getvalue()


def test_a_log_has_a_line_now_and_then_also_for_many_short_pieces(stderr, monkeypatch):
    log, now = stderr(io.StringIO()), 0.0
    monkeypatch.setattr(progress, "LINE_SECONDS", 30)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with doing():
        for task in range(10):
            with doing(f"task {task}"), Progress(10) as bar:
                now += 10
                bar.advance(10)
    assert [line.split(":")[0] for line in log.getvalue().splitlines()] == ["task 2", "task 5", "task 8"]


def test_short_work_and_what_is_not_shown_are_silent(monkeypatch):
    for delay, seconds, shown in ((progress.DELAY, progress.LINE_SECONDS, True), (0, 0, False)):
        monkeypatch.setattr(progress, "DELAY", delay)
        monkeypatch.setattr(progress, "LINE_SECONDS", seconds)
        for stream in (Terminal(), io.StringIO()):
            monkeypatch.setattr(sys, "stderr", stream)
            with Progress(2, shown=shown) as bar:
                bar.advance(2, None if shown else lambda: pytest.fail("asked"))
            assert stream.getvalue() == ""


def test_skipped_seconds_do_not_count(stderr, monkeypatch):
    now = 1000.0
    log = stderr(io.StringIO())
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with Progress(100, "steps") as bar:
        now += 100
        bar.skip(90)
        bar.advance(50)
    assert "50 of 100 steps, 5 a second, 00:10 left" in log.getvalue()
    terminal = stderr(Terminal())
    with Progress(100, "steps") as bar:
        bar._bar.start_t -= 100
        bar._bar.last_print_t -= 100
        bar.skip(90)
        bar.advance(50)
        assert bar._bar.format_dict["elapsed"] == pytest.approx(10, abs=1)
    assert "5.0" in terminal.getvalue()


def test_a_written_line_goes_to_standard_output(capsys):
    progress.write("step 1: eval/stsb_dev 80.00")
    assert capsys.readouterr().out == "step 1: eval/stsb_dev 80.00\n"


def test_a_text_is_shown_on_a_terminal_while_something_takes_long(stderr):
    terminal = stderr(Terminal())
    with shown_meanwhile("compiling …"):
        assert terminal.getvalue() == "compiling …\r"
    assert terminal.getvalue() == f"compiling …\r{' ' * 11}\r"
    for stream, shown in ((Terminal(), False), (io.StringIO(), True)):
        stderr(stream)
        with shown_meanwhile("compiling …", shown):
            assert stream.getvalue() == ""
