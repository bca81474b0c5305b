"""What the shell scripts import is there: nothing else would notice before they are run."""

import importlib
import re

from support import ROOT

IMPORT = re.compile(r"from (simcse_jax[\w.]*|benchmarks[\w.]*) import (\w+)")


def test_names_that_scripts_import_are_there():
    scripts = [path for folder in ("benchmarks", "examples", "launch") for path in (ROOT / folder).glob("*.sh")]
    found = [match for path in scripts for match in IMPORT.findall(path.read_text())]
    assert found
    for module, name in found:
        assert hasattr(importlib.import_module(module), name), (module, name)
