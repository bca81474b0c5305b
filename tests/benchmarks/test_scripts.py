"""What the shell scripts import is there: nothing else would notice before they are run."""

import importlib
import re
import subprocess

from support import ROOT

IMPORT = re.compile(r"from (simcse_jax[\w.]*|benchmarks[\w.]*) import (\w+)")


def test_names_that_scripts_import_are_there():
    scripts = [path for folder in ("benchmarks", "examples", "launch") for path in (ROOT / folder).glob("*.sh")]
    found = [match for path in scripts for match in IMPORT.findall(path.read_text())]
    assert found
    for module, name in found:
        assert hasattr(importlib.import_module(module), name), (module, name)


def test_the_gpu_s_script_asks_for_its_arguments():
    def told(*arguments):
        done = subprocess.run(["bash", "benchmarks/gpu.sh", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.returncode, done.stderr

    code, usage = told()
    assert (code, usage.split()[:4]) == (2, ["usage:", "benchmarks/gpu.sh", "SENTENCES.txt", "OUTPUT_FOLDER"])
    assert told("no.txt", "out") == (2, "error: no.txt: cannot be read\n")
