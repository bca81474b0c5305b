"""The full report of an error."""

import tempfile

import jax

from simcse_jax.host import report
from simcse_jax.host.version import __version__


def test_a_report_has_the_command_the_versions_and_the_traceback():
    try:
        {}["a \udcff"]
    except KeyError as error:
        text = report.describe(error, "simcse-jax encode")
    assert text.startswith("command: simcse-jax encode\n")
    for part in (__version__, f"jax {jax.__version__}", "Traceback", __file__, "KeyError"):
        assert part in text


def test_a_report_has_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = report.write("a \udcff"), report.write("b")
    assert first != second and open(first).read() == "a \\udcff"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert report.write("c") is None


def test_which_errors_mean_too_little_memory():
    assert report.out_of_memory(MemoryError())
    assert report.out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes"))
    assert not report.out_of_memory(RuntimeError("INTERNAL: a bug"))
