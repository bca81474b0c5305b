"""Our exports in ONNX Runtime and OpenVINO, each in an environment of its own: `make test-onnx test-openvino`.

Their packages require an older transformers than ours. `BACKEND` is the one to test, `BACKEND_PYTHON` the Python of its
environment.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import call, sentences, train_args, write_model

from simcse_jax import SimCSE

pytestmark = pytest.mark.backends
CLASSES = {"onnx": "ORTModelForFeatureExtraction", "openvino": "OVModelForFeatureExtraction"}
ENGLISH = ["A man is riding in a boat.", "", "Dinner went wrong, and nobody said a word until the guests had left."]
ENGLISH += ["It's cold! " * 90, "Ein Satz, der nicht englisch ist: Übermut tut selten gut."]


def trained_and_exported(model: object, corpus: dict[str, Path], folder: Path, *more: str) -> Path:
    """The folder that a run of two steps is exported to."""
    steps = ("--config.train.max_steps=2", "--config.eval.every=2")
    args = train_args(model, corpus["txt"], corpus["dev"], folder / "run", *steps, *more)
    for command in (["train", *args], ["export", "--workdir", folder / "run", "--output", folder / "model"]):
        assert call(*command).returncode == 0
    return folder / "model"


def largest_difference(folder: Path, given: list[str], scratch: Path) -> float:
    (scratch / "sentences.json").write_text(json.dumps(given))
    script, output = Path(__file__).with_name("encode.py"), scratch / "found.npy"
    python, backend = os.environ["BACKEND_PYTHON"], os.environ["BACKEND"]
    command = [python, script, folder, backend, scratch / "sentences.json", output]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == CLASSES[backend]
    found, ours = np.load(output), SimCSE(folder).encode(given)
    assert found.shape == ours.shape and np.abs(ours).max() > 0.05
    return float(np.abs(found - ours).max())


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "xlm-roberta", "electra", "albert"])
def test_exports_of_tiny_encoders(kind, corpus, tmp_path):
    """With a head, which is a Dense module."""
    model = write_model(tmp_path / kind, kind)
    folder = trained_and_exported(model, corpus, tmp_path, "--config.model.mlp=always")
    assert (folder / "2_Dense").is_dir()
    assert report(kind, largest_difference(folder, ["", "the cat " * 20, *sentences(9)], tmp_path)) < 1e-4


def test_an_export_of_a_real_encoder(minilm, corpus, tmp_path):
    """MiniLM: six layers, the mean of its tokens, and a module Normalize in none of its exports."""
    folder = trained_and_exported(minilm, corpus, tmp_path)
    assert report("MiniLM", largest_difference(folder, ENGLISH, tmp_path)) < 1e-4


def report(name: str, difference: float) -> float:
    print(f"{os.environ['BACKEND']}, {name}: {difference:.1e}")
    return difference
