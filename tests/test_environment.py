"""What a fresh machine gets, and what works without the extra "train"."""

import csv
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib

import pytest
from support import ROOT, call, refused

from simcse_jax import errors
from simcse_jax.__main__ import COMMANDS
from simcse_jax.data.examples import read_examples
from simcse_jax.errors import UserError

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ONLY_TO_TRAIN = ("datasets", "tensorflow_datasets", "tensorboardX", "matplotlib")
# Without these modules, runs commands one after the other, and stops at the first that does not end with 0.
LIGHT = """
import json, sys

sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from simcse_jax.__main__ import dispatch
from simcse_jax.commands.command_line import run_command

for command in json.loads(sys.argv[2]):
    sys.argv = ["simcse-jax", *command]
    try:
        run_command(dispatch)
    except SystemExit as end:
        if end.code:
            raise
"""


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


def test_requirements_are_core_and_train_without_pytorch_and_the_core_needs_none_of_training():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    names = [re.match(r"[\w.-]+", line)[0] for line in lines if line and not line.startswith("#")]
    found = set().union(*(needs(name, set()) for name in names))
    assert {"jax", "flax", "transformers", "datasets"} <= found
    assert not {name for name in found if name.startswith(("torch", "nvidia"))}
    assert "tensorflow" not in found
    core = set().union(*(needs(re.match(r"[\w.-]+", line)[0], set()) for line in PROJECT["dependencies"]))
    assert {"jax", "flax", "transformers"} <= core
    assert not core & {"datasets", "tensorflow-datasets", "tensorboardx", "matplotlib", "pandas"}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    core, train = PROJECT["dependencies"], PROJECT["optional-dependencies"]["train"]
    assert requirements_of(lines) == [*core, *train]
    assert all(re.fullmatch(r"[\w.\[\]-]+>=[\d.]+", line) for line in requirements_of(lines))  # `make test-oldest`
    names = {re.match(r"[\w.-]+", line)[0].replace("-", "_") for line in train}
    assert set(ONLY_TO_TRAIN) <= names


def requirements_of(lines):
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def test_without_train_and_pytorch_commands_explain_themselves_encode_and_search(tiny_bert, corpus, tmp_path):
    given = ["--model", str(tiny_bert), "--data", str(corpus["txt"])]
    commands = [[name, "--help"] for name in COMMANDS]
    commands += [["encode", *given, "--output", str(tmp_path / "a.npy")]]
    commands += [["search", *given, "--queries", str(corpus["txt"]), "--top-k", "1"]]
    arguments = [json.dumps([*ONLY_TO_TRAIN, "torch", "tensorflow"]), json.dumps(commands)]
    done = subprocess.run([sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^[Uu]sage: simcse-jax ([\w-]+) ", done.stdout, re.MULTILINE) == list(COMMANDS)
    assert (tmp_path / "a.npy").is_file() and corpus["txt"].read_text().splitlines()[0] in done.stdout


NEEDING = [
    ("train --config=unsup_bert --workdir={}", "tensorboardX"),
    ("sweep --config=ablations/simcse_table3 --workdir={}", "matplotlib"),
    ("analyze --model=m --data=x.txt --output={}", "matplotlib"),
    ("geometry --models=m --data=x --output={}", "matplotlib"),
]


def test_what_needs_more_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "installed", lambda name: name not in ONLY_TO_TRAIN)
    for command, missing in NEEDING:
        done = call(*command.format(tmp_path / "out").split())
        refused(done, f'not installed: {missing}; run: pip install "simcse_jax[train]"')
    for data, missing in (("hf:x", "datasets"), ("tfds:x", "tensorflow_datasets")):
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(UserError, match=rf'^not installed: {missing}; run: pip install "simcse_jax\[train\]"$'):
            read_examples(data)


def test_no_training_sentence_stands_in_the_held_out_pairs():
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
