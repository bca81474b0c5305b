"""A run's folder: what is being run (`run.json`), what it has measured (`metrics.jsonl`), the model's own files.

run.json        the resolved config, versions, device, fingerprints of data and weights
metrics.jsonl   a line a logged step, a line an evaluation, a line a measurement of the last layer
result.json     the test scores of the best checkpoint
model/          the encoder's config.json and tokenizer, so that the folder needs nothing else
checkpoints/    Orbax
tensorboard/    the metrics again
"""

import contextlib
import hashlib
import importlib.metadata
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from ml_collections import config_dict

from simcse_jax import __version__
from simcse_jax.config import default_config, flatten
from simcse_jax.errors import UserError
from simcse_jax.models.pretrained import Pretrained
from simcse_jax.models.tokenizer import FILES, MARKER, Tokenizer
from simcse_jax.models.weight_files import read_json, write_json
from simcse_jax.storage import Folder, is_remote, write_atomically

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
FREE = ("train.log_every", "analysis.", "checkpoint.", "parallel.")
MEASURED_ON = ("analysis.data", "analysis.sentences")  # but all lines of its metrics are of the same sentences
WRITE_SECONDS = 5  # between two writes of metrics.jsonl
SEEN_SECONDS = 60  # until a new workdir must be seen by all processes


def is_workdir(folder: Folder) -> bool:
    """Whether a run has been started in it."""
    return (folder / "run.json").is_file()


def wait_for(folder: Folder) -> None:
    """Returns once this process sees the run that the first one has created: a network disk may show it late.

    Raises:
      UserError: when it does not come to be seen.
    """
    for _ in range(SEEN_SECONDS):
        with contextlib.suppress(OSError):
            list(folder.iterdir())  # makes a client of NFS look again
        if is_workdir(folder):
            return
        time.sleep(1)
    raise UserError(f"--workdir {folder}: not the same folder for every process; use a shared disk or gs://…")


def resolved(config: config_dict.ConfigDict) -> dict[str, Any]:
    """The config as JSON gives it back: tuples are lists."""
    return json.loads(json.dumps(config.to_dict()))


def identity(config: config_dict.ConfigDict) -> str:
    """A fingerprint of all fields that processes must have alike."""
    fields = {name: value for name, value in sorted(flatten(config).items()) if name != "parallel.process_id"}
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def check_same_run(folder: Folder, config: config_dict.ConfigDict, fingerprints: Mapping[str, str]) -> None:
    """Refuses to go on in a folder that belongs to another config, other data or other weights.

    `fingerprints` are SHA-256 of what the named config fields lead to. A field that the run's version did not know had
    its default.

    Raises:
      UserError: naming the fields that differ.
    """
    path = folder / "run.json"
    saved = read_json(path)
    try:
        defaults = flatten(config_dict.ConfigDict(resolved(default_config())))
        before = defaults | flatten(config_dict.ConfigDict(saved["config"]))
        fingerprints_before = dict(saved["sha256"])
    except (KeyError, TypeError):
        raise UserError(f"{path}: damaged; choose another workdir") from None
    now = flatten(config_dict.ConfigDict(resolved(config)))
    names = sorted(name for name in before.keys() | now.keys() if name in MEASURED_ON or not name.startswith(FREE))
    differing = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in names if before.get(name) != now.get(name)
    ]
    if differing:
        raise UserError(
            f"{folder} belongs to another config: {'; '.join(differing)}. Choose another workdir, or remove this one"
        )
    for field, fingerprint in fingerprints.items():
        if fingerprints_before.get(field, fingerprint) != fingerprint:  # a run may be analysed from here on
            raise UserError(f"{folder}: what {field}={now[field]} leads to has changed since; choose another workdir")


def create(
    folder: Folder,
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
        if path.exists() and not (path == ours and (ours / MARKER).is_file()):  # that is of a start that was killed
            raise UserError(
                f"workdir {folder}: has {path.name} but no run.json, so it is not known whose; choose another"
            )
    with tempfile.TemporaryDirectory() as temporary:
        write_encoder_files(model, tokenizer, Path(temporary), config.model.pooler, config.model.mlp == "always")
        for file in sorted(Path(temporary).iterdir(), key=lambda file: file.name != MARKER):  # the marker comes first
            write_atomically(ours / file.name, file.read_bytes())
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


def read_metrics(folder: Folder) -> list[dict[str, Any]]:
    """The lines that the run has written to `metrics.jsonl`, none before its first.

    Raises:
      UserError: when a line is damaged.
    """
    path = folder / "metrics.jsonl"
    return _whole_lines(path) if path.is_file() else []


class Metrics:
    """Writes metrics to `metrics.jsonl` and TensorBoard; on resume both go back to the resumed step.

    The file is written whole each time, since an object store cannot append: before each checkpoint, and in between
    at most every `WRITE_SECONDS`. So what a kill loses is what the resumed run measures again.
    """

    def __init__(self, folder: Folder, step: int | None):
        """Opens them; `step` is the one resumed from, None at a run's start."""
        self._path = folder / "metrics.jsonl"
        self._lines = []
        if self._path.exists():
            self._lines = [line for line in _whole_lines(self._path) if step is not None and line["step"] <= step]
        self._tensorboard = folder / "tensorboard"
        self._temporary = tempfile.TemporaryDirectory() if is_remote(folder) else None
        self._purge_step = 0 if step is None else step + 1
        self._writer = None  # made by the first flush that has a line, for its import takes seconds beside PyTorch
        self._unshown: list[tuple[float, dict[str, Any]]] = []  # lines that TensorBoard lacks, and when they came
        self.flush()

    def write(self, step: int, values: Mapping[str, float | Mapping[str, float]]) -> None:
        """Adds a line."""
        self._lines.append({"step": step, **values})
        self._unshown.append((time.time(), self._lines[-1]))
        if time.monotonic() > self._written + WRITE_SECONDS:
            with contextlib.suppress(UserError):  # it is told before the next checkpoint, by all processes together
                self.flush()

    def flush(self) -> None:
        """All that was added is in the workdir when this returns.

        Raises:
          UserError: when it cannot be written.
        """
        self._written = time.monotonic()
        write_atomically(self._path, "".join(json.dumps(line) + "\n" for line in self._lines))
        try:
            self._show()
        except OSError as error:
            raise UserError(f"{self._tensorboard}: cannot be written: {error.strerror}") from None
        self._upload()

    def _upload(self) -> None:
        if self._temporary:
            for file in Path(self._temporary.name).iterdir():
                write_atomically(self._tensorboard / file.name, file.read_bytes())

    def _show(self) -> None:
        """Brings TensorBoard up to date; it has what is in a group as GROUP/NAME."""
        if not self._unshown:
            return
        if self._writer is None:
            from tensorboardX import SummaryWriter

            folder = self._temporary.name if self._temporary else str(self._tensorboard)
            self._writer = SummaryWriter(folder, purge_step=self._purge_step, write_to_disk=True)
        for seconds, line in self._unshown:
            step, *values = line.items()
            for name, value in values:
                grouped = isinstance(value, Mapping)
                for title, number in {f"{name}/{x}": value[x] for x in value}.items() if grouped else [(name, value)]:
                    self._writer.add_scalar(title, number, step[1], seconds)
        self._unshown = []
        self._writer.flush()

    def close(self) -> None:
        """Writes out what is left."""
        self.flush()
        if self._writer is not None:
            self._writer.close()  # it has a thread that may have been writing until here
            self._upload()
        if self._temporary:
            self._temporary.cleanup()


def _whole_lines(path: Folder) -> list[dict[str, Any]]:
    # A last line without its end is no line, however it came to be cut off.
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            raise UserError(f"{path}: line {number} is damaged; remove that line") from None
    return lines
