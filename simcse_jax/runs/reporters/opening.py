"""Opens what `train.report_to` names."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from simcse_jax.config.fields import TRACKERS
from simcse_jax.errors import require
from simcse_jax.host.storage import Folder, is_remote
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters.mlflow import MlflowRun
from simcse_jax.runs.reporters.tensorboard import TensorBoard
from simcse_jax.runs.reporters.tracker import Tracker
from simcse_jax.runs.reporters.wandb import WandbRun

TENSORBOARD, WANDB, MLFLOW = TRACKERS
NEEDED = {TENSORBOARD: ("train", "tensorboardX"), WANDB: ("wandb", "wandb"), MLFLOW: ("mlflow", "mlflow")}
SEED = re.compile(r"seed\d+")  # the folder of a sweep's run, in one with the variant's name


def check_installed(trackers: Sequence[str]) -> None:
    """Refuses a tracker that is not installed."""
    for name in trackers:
        require(*NEEDED[name])


def report_to_all(
    metrics: Metrics, trackers: Sequence[str], fields: Mapping[str, Any], folder: Folder, step: int | None
) -> None:
    """Adds trackers to a run's metrics, each as it is opened, so that closing the metrics closes all.

    Args:
      metrics: of the run.
      trackers: their names, of `train.report_to`.
      fields: of the run's config by dotted names, for the trackers.
      folder: the run's.
      step: the resumed one; None at the start.
    """
    name = run_name(folder)
    for kind in trackers:
        if kind == TENSORBOARD:
            metrics.add(TensorBoard(folder, step))
            continue
        open_run = partial(WandbRun, folder=folder) if kind == WANDB else MlflowRun
        tracker = Tracker(kind, folder, partial(open_run, name=name, fields=fields))
        metrics.add(tracker)
        tracker.replay(metrics.lines)


def run_name(folder: Folder) -> str:
    """The folder's name, after that of the folder around it if it names only a seed."""
    if not is_remote(folder):
        folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if SEED.fullmatch(folder.name) else folder.name
