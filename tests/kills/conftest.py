"""What the tests of kills and of full disks share: a warm process, and each command with its result."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import pytest
from support import lines, train_args, without_speed
from support.sweeps import sweep_text
from support.warm import Warm

VARIANTS = 'Variant("a", {}, {}), Variant("b", {"train.learning_rate": 3e-4})'


class Job(NamedTuple):
    """A command that writes to a folder."""

    prepare: Callable[[Path], None]  # what is in the folder before
    args: Callable[[Path], list]
    result: Callable[[Path], object]  # all that must be the same
    states: Callable[[Path], object] | None = None  # what a reader finds: before the command or after it, nothing else


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    warm = Warm(tmp_path_factory.mktemp("warm"))
    yield warm
    warm.close()


def files_of(folder: Path) -> dict[str, str] | None:
    """The fingerprint of each file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    return found if folder.exists() else None


def index_of(folder: Path) -> tuple | None:
    """The sentences and the embeddings of an index, read from its files; None where there is none."""
    if not (folder / "index.json").exists():
        return None
    about = json.loads((folder / "index.json").read_text())
    sentences = pyarrow.parquet.read_table(folder / about["sentences"])["sentence"].to_pylist()
    return about["model"]["sha256"], sentences, np.load(folder / about["embeddings"]).tobytes()


@pytest.fixture(scope="module")
def jobs(warm, tiny_bert, corpus, trained, exported, tmp_path_factory) -> dict[str, Job]:
    """By name."""
    given = tmp_path_factory.mktemp("given")
    sweep = given / "tiny.py"
    sweep.write_text(sweep_text(tiny_bert, corpus, VARIANTS, steps=4, seeds=(1,)))
    rows = corpus["txt"].read_text().splitlines()
    (given / "half.txt").write_text("\n".join(rows[:20]) + "\n")

    def nothing(folder):
        pass

    def succeed(args, folder):
        done = warm.run(args, folder)
        assert done.code == 0, done.err
        return done.out

    def run_of(workdir):
        about = [(workdir / name).read_text() for name in ("run.json", "result.json")]
        return succeed(["digest", workdir], workdir), files_of(workdir / "model"), about, without_speed(lines(workdir))

    def train(folder):
        more = train_args(tiny_bert, corpus["csv"], corpus["dev"], folder / "run", "--config.model.mlp=always")
        return ["train", *more]

    def encode(kind):
        given = ["encode", "--model", tiny_bert, "--data", corpus["txt"], "--save-every", 7]
        return Job(nothing, lambda folder: [*given, "--output", folder / f"emb{kind}"], files_of)

    def prepare(folder):
        given = ["prepare", "--data", f"{corpus['txt']},{corpus['csv']}", "--mixed", "--model", tiny_bert]
        return [*given, "--max-length", 16, "--keep-text", "--output", folder / "corpus"]

    def search(file):
        given = ["search", "--model", tiny_bert, "--data", file, "--query", "the cat"]
        return lambda folder: [*given, "--index", folder / "index"]

    def index_before(folder):
        succeed(search(given / "half.txt")(folder), folder)

    def index(folder):
        return index_of(folder / "index")

    def export(folder):
        return ["export", "--workdir", trained, "--output", folder / "model"]

    def model(folder):
        return files_of(folder / "model")

    def export_before(folder):
        shutil.copytree(exported, folder / "model")
        (folder / "model" / "README.md").write_text("an earlier one")

    def sweep_args(*more):
        return lambda folder: ["sweep", f"--config={sweep}", f"--workdir={folder / 'sweep'}", *more]

    def table(folder):
        runs = [folder / "sweep" / name / "seed1" for name in "ab"]
        alone = [run_of(run) for run in runs if (run / "checkpoints").exists()]
        scores = [((run / "result.json").read_text(), without_speed(lines(run))) for run in runs]
        return (folder / "sweep" / "tiny.csv").read_text(), scores, alone

    return {
        "training": Job(nothing, train, lambda folder: run_of(folder / "run")),
        "encode to .npy": encode(".npy"),
        "encode to .parquet": encode(".parquet"),
        "a prepared corpus": Job(nothing, prepare, files_of),
        "a new index": Job(nothing, search(corpus["txt"]), index, index),
        "an index that grows": Job(index_before, search(corpus["txt"]), index, index),
        "a new export": Job(nothing, export, files_of, model),
        "an export that is replaced": Job(export_before, export, files_of, model),
        "a sweep": Job(nothing, sweep_args(), table),
    }
