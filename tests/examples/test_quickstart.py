import re
import subprocess
import sys

import pytest
from support import ROOT, succeeded


@pytest.mark.optimized
@pytest.mark.slow
def test_the_quickstart_shows_a_gain_on_held_out_pairs(minilm, tmp_path):
    command = ["bash", "examples/quickstart.sh", sys.executable, str(tmp_path / "run")]
    done = succeeded(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=None))
    before, _, after = (float(score) for score in re.findall(r"^ *(\d+\.\d\d)$", done.stdout, re.MULTILINE))
    assert after > before + 2 and "Next steps" in done.stdout
    assert (tmp_path / "run" / "export" / "model.safetensors").is_file()
    assert any((tmp_path / "run" / "checkpoints").iterdir())
