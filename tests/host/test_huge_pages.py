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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of Linux and glibc")
@pytest.mark.parametrize(
    ("given", "offered", "starts"),
    [
        (None, "always [madvise] never", [None, huge_pages.SETTING]),
        (None, "[always] madvise never", [None]),
        ("", "always [madvise] never", [""]),
        ("glibc.malloc.perturb=1", "always [madvise] never", ["glibc.malloc.perturb=1"]),
    ],
)
def test_a_process_starts_anew_once_with_its_arguments_where_pages_are_for_those_who_ask(given, offered, starts, pages):
    if not huge_pages.would_help({}, pages("always [madvise] never")):
        pytest.skip("a glibc before 2.35, or none")
    environment = {name: value for name, value in os.environ.items() if name != huge_pages.VARIABLE}
    environment |= {"PAGES": str(pages(offered)), **({} if given is None else {huge_pages.VARIABLE: given})}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "a b", "ü"], env=environment, stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate()
    assert process.returncode == 0
    assert out.splitlines() == [f"{process.pid} {value} a b ü" for value in starts]


@pytest.mark.parametrize("version", [None, "glibc 2.34", "musl 1.2", "glibc"])
def test_another_library_or_system_is_left_alone(version, pages, monkeypatch):
    monkeypatch.setattr(os, "confstr", lambda name: version)
    assert not huge_pages.would_help({}, pages("always [madvise] never"))
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.41")
    assert huge_pages.would_help({}, pages("always [madvise] never"))
    assert not huge_pages.would_help({}, pages("x").parent / "missing")
