import csv
import json
import runpy
import subprocess
import sys

import pytest
from support import ROOT, succeeded

FOLDER = ROOT / "examples" / "first_win"


def test_its_files_are_those_that_its_script_makes(tmp_path):
    script = tmp_path / "make.py"
    script.write_text((FOLDER / "make.py").read_text())
    runpy.run_path(str(script), run_name="__main__")
    for name in ("pairs.csv", "new.csv", "log.txt"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
    pairs, new = (
        set(map(tuple, csv.reader((FOLDER / name).open(encoding="utf-8")))) for name in ("pairs.csv", "new.csv")
    )
    assert len(pairs) == 321 and len(new) == 81 and len({entry for _, entry in pairs & new}) == 1  # the header


@pytest.mark.optimized
@pytest.mark.slow
def test_the_quickstart_gains_and_finds_what_the_base_model_does_not(minilm, tmp_path):
    run = tmp_path / "run"
    command = ["bash", "examples/quickstart.sh", sys.executable, str(run), "--folds", "0"]
    done = succeeded(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=None))
    assert json.loads((run / "result.json").read_text())["against_start"]["low"] > 30
    (oven,) = (line for line in done.stdout.splitlines() if "#1" in line and "GLY OVN" in line)
    tuned, base = oven.rsplit("|", 1)
    assert "GLY OVN INOP" in tuned and "OVN" not in base
    assert (run / "export" / "model.safetensors").is_file()
