"""The environment on a new machine."""

import importlib.metadata
import re
import subprocess
import sys

from support import ROOT


def needs(name: str, seen: set[str]) -> set[str]:
    """A distribution and all its requirements, without extras."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name not in seen:
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            return seen  # for another platform or another Python
        seen.add(name)
        for requirement in requirements:
            if "extra ==" not in requirement:
                needs(re.match(r"[\w.-]+", requirement)[0], seen)
    return seen


def test_nothing_in_the_quickstart_s_environment_needs_pytorch():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    names = [re.match(r"[\w.-]+", line)[0] for line in lines if line and not line.startswith("#")]
    found = set().union(*(needs(name, set()) for name in names))
    assert {"jax", "flax", "transformers", "datasets"} <= found
    assert not {name for name in found if name.startswith(("torch", "nvidia"))}
    assert "tensorflow" not in found


def test_every_module_imports_without_pytorch():
    code = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "tensorflow"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
import simcse_jax.main, simcse_jax.training.run, simcse_jax.evaluate, simcse_jax.export, simcse_jax.simcse
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_no_training_sentence_is_in_the_held_out_pairs():
    import csv

    folder = ROOT / "examples" / "everyday"
    with open(folder / "triplets.csv", encoding="utf-8", newline="") as file:
        triplets = list(csv.DictReader(file))
    assert len(triplets) >= 500
    trained_on = {sentence.lower() for row in triplets for sentence in row.values()}
    pairs = {}
    for name in ("dev", "test"):
        rows = [line.split("\t") for line in (folder / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[1:]]
        pairs[name] = {sentence.lower() for row in rows for sentence in row[:2]}
        assert all(0 <= float(row[2]) <= 5 for row in rows)
    assert not trained_on & (pairs["dev"] | pairs["test"])
    assert not pairs["dev"] & pairs["test"]
