"""Opens what `train.report_to` names."""

import re
from functools import partial

from simcse_jax.config.fields import TRACKERS, flatten
from simcse_jax.config.sections import Section
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


def check_installed(config: Section) -> None:
    """Refuses a tracker that is not installed."""
    for name in config.train.report_to:
        require(*NEEDED[name])


def report_to_all(metrics: Metrics, config: Section, folder: Folder, step: int | None) -> None:
    """Adds to a run's metrics what `train.report_to` names, each as it is opened, so that closing them closes all."""
    name, fields = run_name(folder), flatten(config)
    for kind in config.train.report_to:
        if kind == TENSORBOARD:
            metrics.add(TensorBoard(folder, step))
            continue
        open_run = partial(WandbRun, folder=folder) if kind == WANDB else MlflowRun
        tracker = Tracker(kind, folder, partial(open_run, name=name, fields=fields))
        metrics.add(tracker)
        tracker.replay(metrics.lines)


def run_name(folder: Folder) -> str:
    """The name of its folder; that of the folder around it is part of it if it names the seed alone."""
    if not is_remote(folder):
        folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if SEED.fullmatch(folder.name) else folder.name
