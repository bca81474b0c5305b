"""A run's folder: what is being run (`run.json`), what it has measured (`metrics.jsonl`), the model's own files.

run.json        the resolved config, versions, device, fingerprints of data and weights
metrics.jsonl   a line a logged step, a line an evaluation
result.json     the test scores of the best checkpoint
model/          the encoder's config.json and tokenizer, so that the folder needs nothing else
checkpoints/    Orbax
tensorboard/    the metrics again
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from ml_collections import config_dict

from simcse_jax import __version__
from simcse_jax.config import flatten
from simcse_jax.errors import UserError
from simcse_jax.models.pretrained import Pretrained
from simcse_jax.models.tokenizer import FILES, MARKER, Tokenizer
from simcse_jax.models.weight_files import read_json, write_json

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "scipy",
    "transformers",
    "tokenizers",
    "safetensors",
    "datasets",
    "tensorflow-datasets",
    "ml-collections",
)
# Fields that do not change the result, so a run may go on with other values of them.
FREE = ("train.log_every", "checkpoint.", "parallel.")


def write_atomically(path: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Raises:
      UserError: when the disk is full or the folder is not writable.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def is_workdir(folder: Path) -> bool:
    """Whether a run has been started in it."""
    return (folder / "run.json").is_file()


def resolved(config: config_dict.ConfigDict) -> dict[str, Any]:
    """The config as JSON gives it back: tuples are lists."""
    return json.loads(json.dumps(config.to_dict()))


def check_same_run(folder: Path, config: config_dict.ConfigDict, fingerprints: Mapping[str, str]) -> None:
    """Refuses to go on in a folder that belongs to another config, other data or other weights.

    `fingerprints` are SHA-256 of what the named config fields lead to.

    Raises:
      UserError: naming the fields that differ.
    """
    path = folder / "run.json"
    saved = read_json(path)
    try:
        before = flatten(config_dict.ConfigDict(saved["config"]))
        fingerprints_before = dict(saved["sha256"])
    except (KeyError, TypeError):
        raise UserError(f"{path}: damaged; choose another workdir") from None
    now = flatten(config_dict.ConfigDict(resolved(config)))
    names = sorted(name for name in before.keys() | now.keys() if not name.startswith(FREE))
    differing = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in names if before.get(name) != now.get(name)
    ]
    if differing:
        raise UserError(
            f"{folder} belongs to another config: {'; '.join(differing)}. Choose another workdir, or remove this one"
        )
    for field, fingerprint in fingerprints.items():
        if fingerprints_before.get(field) != fingerprint:
            raise UserError(f"{folder}: what {field}={now[field]} leads to has changed since; choose another workdir")


def create(
    folder: Path,
    config: config_dict.ConfigDict,
    fingerprints: Mapping[str, str],
    model: Pretrained,
    tokenizer: Tokenizer,
) -> None:
    """Starts a run's folder; `run.json` comes last, so a folder that has it has all the rest.

    Raises:
      UserError: when the folder cannot be written, or holds something that a run would overwrite.
    """
    ours = folder / "model"
    for path in (folder / "checkpoints", folder / "metrics.jsonl", ours):
        if path.exists() and not (path == ours and (ours / MARKER).is_file()):  # that is a start that was killed
            raise UserError(
                f"workdir {folder}: has {path.name} but no run.json, so it is not known whose; choose another"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".model.*"):  # of a start that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=".model.", dir=folder))
        try:
            write_encoder_files(model, tokenizer, temporary, config.model.pooler, config.model.mlp == "always")
            temporary.chmod(0o755)
            shutil.rmtree(ours, ignore_errors=True)
            os.rename(temporary, ours)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise UserError(f"workdir {folder}: cannot be written: {error.strerror}") from None
    devices = jax.devices()
    run = {
        "config": resolved(config),
        "sha256": dict(fingerprints),
        "model": {"max_length": model.max_length},
        "versions": {"python": platform.python_version(), **versions()},
        "device": {"kind": devices[0].device_kind, "platform": devices[0].platform, "count": len(devices)},
    }
    write_atomically(folder / "run.json", json.dumps(run, indent=2) + "\n")


def write_encoder_files(
    model: Pretrained, tokenizer: Tokenizer, target: Path, pooler: str, has_head: bool, **fields: Any
) -> None:
    """Writes the encoder's `config.json`, its tokenizer, and the marker that tells the pooler and the head.

    `fields` are set in `config.json` beside those that it has.
    """
    config = read_json(model.folder / "config.json")
    config["num_hidden_layers"] = model.config.num_layers
    config.pop("torch_dtype", None)
    config["dtype"] = "float32"  # whatever the source was stored in: transformers obeys this field
    write_json(target / "config.json", config | fields)
    for name in FILES:
        if (model.folder / name).is_file():
            shutil.copyfile(model.folder / name, target / name)
    tokenizer.save(target / "tokenizer.json")
    write_json(target / MARKER, {"pooler": pooler, "head": has_head, "version": __version__})


def versions() -> dict[str, str]:
    """The versions of ours and of the packages that a result can depend on."""
    found = {"simcse_jax": __version__}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


class Metrics:
    """Writes metrics to `metrics.jsonl` and TensorBoard; on resume both go back to the resumed step."""

    def __init__(self, folder: Path, step: int | None):
        """Opens them; `step` is the one resumed from, None at a run's start."""
        from tensorboardX import SummaryWriter

        self._path = folder / "metrics.jsonl"
        if self._path.exists():
            kept = [line for line in _whole_lines(self._path) if step is not None and json.loads(line)["step"] <= step]
            write_atomically(self._path, "".join(line + "\n" for line in kept))
        self._file = open(self._path, "a", encoding="utf-8")
        self._tensorboard = SummaryWriter(
            str(folder / "tensorboard"), purge_step=0 if step is None else step + 1, write_to_disk=True
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One line, on disk when this returns."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        for name, value in values.items():
            self._tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes out what is left."""
        self._file.close()
        self._tensorboard.close()


def _whole_lines(path: Path) -> list[str]:
    # A kill can leave the last line cut off; it is then of a step that comes again.
    return [line for line in path.read_text(encoding="utf-8").split("\n")[:-1] if line]
