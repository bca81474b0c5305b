"""A run in Weights & Biases."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from simcse_jax.host.storage import Folder, is_remote
from simcse_jax.runs.reporters.tracker import StepNumbers

PROJECT = "simcse_jax"  # if WANDB_PROJECT names none


class WandbRun:
    """Its numbers are sent by a process of wandb's own, which waits for the network, and may lose some in a kill."""

    keeps = False

    def __init__(self, run_id: str | None, name: str, fields: Mapping[str, Any], folder: Folder):
        """Opens the run `run_id`, an id, or a new one.

        Its `folder` gets wandb's files where it is on a disk and WANDB_DIR names no other one.
        """
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            id=run_id,
            resume="allow",
            config=dict(fields),
            dir=None if is_remote(folder) or "WANDB_DIR" in os.environ else str(folder),
            reinit="create_new",  # those of a sweep are trained together
            settings=wandb.Settings(console="off", quiet=True),
        )
        self.id = self._run.id
        self.is_new = not (self._run.resumed or self._run.offline)
        self.first_step = self._run.starting_step  # 0 where it is offline

    def send(self, rows: Sequence[StepNumbers]) -> None:
        """Adds numbers."""
        for row in rows:
            self._run.log(dict(row.values), step=row.step)

    def summarize(self, step: int, result: Mapping[str, float]) -> None:
        """Adds scores to the run's summary."""
        self._run.summary.update(dict(result))

    def close(self, ended: bool) -> None:
        """Waits until all is sent."""
        self._run.finish(exit_code=0 if ended else 1)
