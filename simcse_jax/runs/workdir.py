"""A run's folder and its files.

run.json        the resolved config, which of its names are the hub's, versions, device, the number of examples,
                fingerprints of data and weights
metrics.jsonl   a line for each logged step, each evaluation and each measurement of the last layer
result.json     the test scores of the best checkpoint
folds.json      the scores of the folds that are finished (`data.folds`)
examples.json   a few rows that were not trained on, before and after training
report.html     all of this as a page (`runs/report.py`)
model/          the encoder's config.json and tokenizer, so that the folder is complete; frozen.safetensors, the
                parameters that do not train, if there are any
checkpoints/    Orbax
.lock           while a job writes here; in a store, the token of the job that owns the folder (`host/locks.py`)
tensorboard/    the metrics again, as all that follows, if train.report_to names it
wandb.json      the id of the run there, and the last step of each number that was sent; wandb/: its own files
mlflow.json     the same of MLflow
"""

import contextlib
import importlib.metadata
import json
import platform
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from simcse_jax.config.fields import flatten
from simcse_jax.errors import UserError, option, system_message
from simcse_jax.host.storage import Folder, read_json, remove, write_atomically
from simcse_jax.host.version import __version__
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.peft import base_fingerprint
from simcse_jax.huggingface.public_names import from_hub
from simcse_jax.huggingface.tokenizer import FILES, MARKER, WORDS_FILE, Tokenizer
from simcse_jax.huggingface.write import write_encoder_files
from simcse_jax.models.arrays import AnyArray
from simcse_jax.runs.metrics_file import Metrics, read_metrics
from simcse_jax.runs.run_files import (
    BEST_STEP,
    FOLDS_FILE,
    FORMAT,
    FREE,
    KEPT,
    KEPT_FIELDS,
    MODULES,
    RECIPE,
    describe_modules,
    read_run,
)
from simcse_jax.runs.state import FINGERPRINT, FROZEN_FILE, ModelSpec, write_frozen

PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy", "transformers", "tokenizers"),
    *("safetensors", "datasets", "tensorflow-datasets", "ml-collections"),
)
# Fields of `FREE` with which no run may resume: all lines of a run's metrics must measure the same sentences.
MEASURED_ON = ("analysis.data", "analysis.sentences", "analysis.split", "analysis.repeated_sentences")
SEEN_SECONDS = 60  # within which all processes must see a new workdir


class Workdir:
    """A run's folder, which may not exist yet."""

    def __init__(self, path: Folder):
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether a run was started in it."""
        return self.run_file.is_file()

    @property
    def run_file(self) -> Folder:
        """`run.json`, for messages."""
        return self.path / "run.json"

    def check_exists(self, named: str) -> None:
        """Refuses a folder without a run; the message begins with `named`, the user's name for it."""
        if not self.exists:
            raise UserError(f"{named}: no run.json there, so it is not a run's folder")

    def wait(self) -> None:
        """Waits until this process sees the run that the first one created, which a network disk may show late."""
        for _ in range(SEEN_SECONDS):
            with contextlib.suppress(OSError):
                list(self.path.iterdir())  # makes an NFS client look again
            if self.exists:
                return
            time.sleep(1)
        where = option("workdir", self)
        raise UserError(f"{where}: not the same folder for every process; use a shared disk or gs://…")

    def check_same_config(self, recorded: Mapping[str, Any]) -> None:
        """Refuses to resume in a folder that belongs to another config; `recorded` is a run's, as in `run.json`."""
        before, now = flatten(self.read_run()["config"]), flatten(recorded)
        names = sorted(name for name in before.keys() | now.keys() if name in MEASURED_ON or not name.startswith(FREE))
        pairs = ((name, before.get(name), now.get(name)) for name in names)
        differing = [f"{name} was {old!r}, is {new!r}" for name, old, new in pairs if old != new]
        if differing:
            raise UserError(f"{self} belongs to another config; choose another workdir, or remove this one", differing)

    def check_same_run(self, recorded: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
        """Refuses to resume in a folder that belongs to another config, other data or other weights.

        Args:
          recorded: a run's config, as in `run.json`.
          fingerprints: SHA-256 of the contents that the named fields refer to.
        """
        self.check_same_config(recorded)
        fingerprints_before, now = self.read_run()["sha256"], flatten(recorded)
        for field, fingerprint in fingerprints.items():
            if fingerprints_before.get(field, fingerprint) != fingerprint:  # a run may be analysed from now on
                raise UserError(
                    f"{self}: the contents of {field}={now[field]} have changed since; choose another workdir"
                )

    def create(
        self,
        recorded: Mapping[str, Any],
        fingerprints: Mapping[str, str],
        spec: ModelSpec,
        model: Pretrained,
        tokenizer: Tokenizer,
        examples: int = 0,
        frozen: Mapping[str, AnyArray] | None = None,
        prompts: Mapping[str, str] | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates a run's folder; `run.json` is written last, so a folder that has it is complete.

        It completes what an earlier start left that was killed or ran out of disk space.

        Args:
          recorded: the run's config, as it is to be in `run.json`.
          fingerprints: SHA-256 of the contents that the named fields refer to.
          spec, model, tokenizer: of the model that is trained.
          examples: the number of rows to train on.
          frozen: the parameters that checkpoints lack, of which the fingerprint is written (see `keep_frozen`).
          prompts: those of queries and documents, if sentences are trained with them.
          recipe: what the config was made of (`flags.changed_from`).
        """
        ours = self.path / "model"
        for path in (self.path / "checkpoints", self.path / "metrics.jsonl", self.path / FOLDS_FILE, ours):
            if path.exists() and not (path == ours and _is_unfinished(ours)):
                raise UserError(
                    f"workdir {self}: has {path.name} but no run.json; it may not be a run's, so choose another"
                )
        try:
            with tempfile.TemporaryDirectory() as temporary:
                write_encoder_files(model, tokenizer, Path(temporary), spec.scored_pooler, spec.head.scored)
                for file in sorted(Path(temporary).iterdir()):
                    write_atomically(ours / file.name, file.read_bytes())
        except OSError as error:
            # A copy's second name is where it was to go.
            raise UserError(
                f"{error.filename2 or error.filename or self}: cannot be written: {system_message(error)}"
            ) from None
        devices = jax.devices()
        modules = {MODULES: describe_modules(model.config.modules)} if model.config.modules else {}
        run = {
            "format": FORMAT,
            "config": recorded,
            **({RECIPE: dict(recipe)} if recipe else {}),
            "hub": from_hub(flatten(recorded)),
            "examples": examples,
            "sha256": dict(fingerprints) | ({FINGERPRINT: base_fingerprint(frozen)} if frozen else {}),
            "model": {"max_length": model.max_length}
            | model_settings(spec.keep_settings, model, prompts or {})
            | modules,
            "versions": {"python": platform.python_version(), **versions()},
            "device": {"kind": devices[0].device_kind, "platform": devices[0].platform, "count": len(devices)},
        }
        write_atomically(self.run_file, json.dumps(run, indent=2) + "\n")

    def keep_frozen(self, frozen: Mapping[str, AnyArray]) -> None:
        """Writes the parameters that checkpoints lack, unless there are none or they are there."""
        if frozen and not (self.path / "model" / FROZEN_FILE).is_file():
            write_frozen(frozen, self.path / "model")

    def read_run(self) -> dict[str, Any]:
        """The contents of `run.json`."""
        return read_run(self.run_file)

    def metrics(self, step: int | None) -> Metrics:
        """The metrics, opened for writing; `step` is the resumed one, None at a run's start."""
        return Metrics(self.path, step)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, which may have none yet."""
        return read_metrics(self.path)

    @property
    def has_result(self) -> bool:
        """Whether the run has its scores."""
        return (self.path / "result.json").is_file()

    def read_result(self) -> dict[str, Any] | None:
        """The contents of `result.json`; None if the run has no scores yet."""
        return read_json(self.path / "result.json") if self.has_result else None

    def scored_step(self) -> int | None:
        """The step of the checkpoint that `result.json` has the scores of; None if it does not say."""
        return (self.read_result() or {}).get(BEST_STEP)

    def drop_result(self) -> None:
        """Removes `result.json`, if there is one: the scores of a model that the run no longer has."""
        remove(self.path / "result.json")

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Writes `result.json`."""
        write_atomically(self.path / "result.json", json.dumps(result, indent=2) + "\n")


def model_settings(keep: bool, model: Pretrained, prompts: Mapping[str, str]) -> dict[str, Any]:
    """The trained model's settings for `run.json`: its prompts, and with `model.keep_settings` the others.

    `prompts`: of queries and documents, that sentences are trained with.
    """
    if not keep:
        return {"prompts": dict(prompts)} if prompts else {}
    stated = {"normalize": model.normalize} | model.settings._asdict()
    kept = {name: value for name, value in stated.items() if name in KEPT_FIELDS}
    prompts_of_model = model.settings.prompts
    usual = prompts_of_model.get(model.settings.default_prompt_name or "")
    trained = {} if {*prompts.values()} == {usual} else prompts  # all texts have the one that `encode` puts before them
    return {"prompts": {**prompts_of_model, **trained}, KEPT: kept}


def _is_unfinished(folder: Folder) -> bool:
    """Whether nothing is in a `model/` but files that a start writes there, whole or not (hidden)."""
    ours = {"config.json", "tokenizer.json", FROZEN_FILE, MARKER, WORDS_FILE, *FILES}
    return folder.is_dir() and all(path.name in ours or path.name.startswith(".") for path in folder.iterdir())


def versions() -> dict[str, str]:
    """Our version and those of the packages that a result can depend on."""
    versions = {"simcse_jax": __version__}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
