import importlib
import json
import os
import re
import subprocess
import sys

import pytest
from support import ROOT

IMPORT = re.compile(r"from (simcse_jax[\w.]*|benchmarks[\w.]*) import (\w+)")


def test_names_that_scripts_import_are_there_and_the_gpu_s_asks_for_its_arguments():
    scripts = [path for folder in ("benchmarks", "examples", "launch") for path in (ROOT / folder).glob("*.sh")]
    found = [match for path in scripts for match in IMPORT.findall(path.read_text())]
    assert found
    for module, name in found:
        assert hasattr(importlib.import_module(module), name), (module, name)

    def usage_of(*arguments):
        done = subprocess.run(["bash", "benchmarks/gpu.sh", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.returncode, done.stderr

    code, usage = usage_of()
    assert (code, usage.split()[:4]) == (2, ["usage:", "benchmarks/gpu.sh", "SENTENCES.txt", "OUTPUT_FOLDER"])
    assert usage_of("no.txt", "out") == (2, "error: no.txt: cannot be read\n")


@pytest.mark.benchmarks
def test_the_gpu_s_stages_run_on_a_cpu_and_stop_for_none_that_fails(tiny_bert, corpus, tmp_path):
    """All but those that need a GPU's compiler or its trace; a second call does what is missing."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "base").symlink_to(tiny_bert)
    sizes = {"STEPS": "2", "RUN_STEPS": "50", "ROWS": "20", "LONG_ROWS": "4", "BATCH": "8"}
    sizes |= {"TOKENS": "64", "BATCH_TOKENS": "64"}
    here = {"ANY_DEVICE": "1", "PATIENCE": "9", "START": str(tiny_bert), "PATH": os.path.dirname(sys.executable)}
    environment = os.environ | sizes | here | {"PATH": f"{here['PATH']}:{os.environ['PATH']}"}

    def run(*stages):
        command = ["bash", "benchmarks/gpu.sh", str(corpus["txt"]), str(tmp_path), *stages]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout

    printed = run("compiled", "steps", "kernels", "seeds", "encode")
    assert "== compiled: exit code 0" not in printed
    for stage in ("steps", "kernels", "seeds", "encode"):
        assert f"== {stage}: exit code 0" in printed and (tmp_path / f"{stage}.md").stat().st_size
    assert json.loads((tmp_path / "steps.json").read_text())["results"][0]["figures"][0][1] > 0
    assert "== steps" not in run("steps")
