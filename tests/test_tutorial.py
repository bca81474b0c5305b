"""The tutorial and the gallery: all their lines run, one after the other, and print what the pages show."""

import os
import re
import socket
import subprocess
import sys

import pytest
from support import ROOT

NUMBER = re.compile(r"\d+\.\d+")


def blocks(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def as_a_line(text):
    """A line with its numbers left out, and the numbers."""
    return NUMBER.sub("#", text.strip()), [float(number) for number in NUMBER.findall(text)]


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("page", ["start/tutorial.md", "gallery.md"])
def test_every_line_runs_and_prints_what_is_shown(page, minilm, tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("simcse-jax", "-m simcse_jax"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (commands / name).chmod(0o755)
    for folder in ("docs", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    code, shown = [], []
    for kind, text in blocks(page):
        if kind == "text":
            shown.append((len(code) - 1, text))
        else:
            code.append(text if kind == "bash" else f"python - <<'END'\n{text}END\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        script = "set -e\n" + "printf '\\f'\n".join(code).replace("8000", str(free.getsockname()[1]))
    ours = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # of the tests: eight devices, and worse programs
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("\f")
    for place, text in shown:
        lines = dict(map(as_a_line, printed[place].splitlines()))
        for line in text.splitlines():
            words, numbers = as_a_line(line)
            assert words in lines, printed[place]
            assert lines[words] == pytest.approx(numbers, rel=0.1, abs=0.1)
    if page == "start/tutorial.md":
        assert (tmp_path / "runs" / "tutorial" / "analysis" / "report.html").is_file()
