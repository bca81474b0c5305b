import os
import subprocess
import sys

import pytest

from simcse_jax.host import huge_pages

PROGRAM = """
import os, sys
from pathlib import Path
from simcse_jax.host import huge_pages
print(os.getpid(), os.environ.get("GLIBC_TUNABLES"), *sys.argv[1:])
huge_pages.use(pages=Path(os.environ["PAGES"]))
"""


@pytest.fixture
def pages(tmp_path):
    def write(text):
        (tmp_path / "enabled").write_text(text)
        return tmp_path / "enabled"

    return write


OFFERED = "always [madvise] never"
# The variable that is given, what the system offers, and the variable at each start.
STARTS = [(None, OFFERED, [None, huge_pages.SETTING]), (None, "[always] madvise never", [None]), ("", OFFERED, [""])]
STARTS += [("glibc.malloc.perturb=1", OFFERED, ["glibc.malloc.perturb=1"])]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of Linux and glibc")
def test_a_process_starts_anew_once_with_its_arguments_where_pages_are_for_those_who_ask(pages):
    if not huge_pages.would_help({}, pages(OFFERED)):
        pytest.skip("a glibc before 2.35, or none")
    for given, offered, starts in STARTS:
        environment = {name: value for name, value in os.environ.items() if name != huge_pages.VARIABLE}
        environment |= {"PAGES": str(pages(offered))} | ({} if given is None else {huge_pages.VARIABLE: given})
        command = [sys.executable, "-c", PROGRAM, "a b", "ü"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        out, _ = process.communicate()
        assert process.returncode == 0
        assert out.splitlines() == [f"{process.pid} {value} a b ü" for value in starts]


def test_another_library_or_system_is_left_alone(pages, monkeypatch):
    helping = {None: False, "glibc 2.34": False, "musl 1.2": False, "glibc": False, "glibc 2.41": True}
    for version, helps in helping.items():
        monkeypatch.setattr(os, "confstr", lambda name, version=version: version)
        assert huge_pages.would_help({}, pages(OFFERED)) is helps
    assert not huge_pages.would_help({}, pages("x").parent / "missing")
