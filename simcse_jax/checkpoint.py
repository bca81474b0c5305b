"""Checkpoints with Orbax: the latest, the best, and every n-th; a killed save leaves the one before intact."""

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from absl import logging

from simcse_jax.errors import UserError, reason
from simcse_jax.models.parameters import Params
from simcse_jax.step import TrainState

SCORE = "score"


class Checkpoints:
    """The checkpoints of a workdir. A checkpoint is named by the number of updates done."""

    def __init__(self, workdir: Path, keep_every: int = 0, read_only: bool = False):
        """Opens `workdir/checkpoints`.

        Args:
          workdir: the run's folder.
          keep_every: keep the checkpoints of every n-th step too; 0: only the latest and the best.
          read_only: for commands that only load.
        """
        logging.set_verbosity(logging.ERROR)  # Orbax tells every file that it touches
        policies = ocp.checkpoint_managers
        keep = [
            policies.LatestN(1),
            policies.BestN(get_metric_fn=_score, n=1, keep_checkpoints_without_metrics=False),
        ]
        if keep_every:
            keep.append(policies.EveryNSteps(keep_every))
        options = ocp.CheckpointManagerOptions(
            best_fn=_score,
            preservation_policy=policies.AnyPreservationPolicy(keep),
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
        )
        self._manager = ocp.CheckpointManager((workdir / "checkpoints").absolute(), options=options)

    @property
    def latest(self) -> int | None:
        """The newest step that was saved completely."""
        return self._manager.latest_step()

    @property
    def best(self) -> int | None:
        """The step with the best score; without any evaluation, the newest."""
        best = self._manager.best_step()
        return self.latest if best is None else best

    def save(self, state: TrainState, score: float | None) -> None:
        """Saves in the background; the arrays may be given up as soon as this returns."""
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(state.params),
                optimizer=ocp.args.StandardSave({"step": state.step, "optimizer": state.optimizer}),
            ),
            metrics=None if score is None else {SCORE: score},
        )

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The state saved at `step`, with the shapes and the placement of `like`."""
        optimizer = {"step": like.step, "optimizer": like.optimizer}
        restored = self._restore(step, params=like.params, optimizer=optimizer)
        return TrainState(restored.optimizer["step"], restored.params, restored.optimizer["optimizer"])

    def restore_params(self, step: int, like: Params) -> Params:
        """Only the parameters saved at `step`."""
        return self._restore(step, params=like).params

    def _restore(self, step: int, **items: Any) -> ocp.args.Composite:
        like = jax.tree.map(ocp.utils.to_shape_dtype_struct, items)
        args = {name: ocp.args.StandardRestore(item) for name, item in like.items()}
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**args))
        except Exception as error:  # Orbax and tensorstore raise many kinds
            raise UserError(f"{self._manager.directory}: step {step} cannot be read: {reason(error)}") from None

    def close(self) -> None:
        """Waits for saves that are under way."""
        self._manager.close()


def _score(metrics: dict[str, float]) -> float:
    return metrics[SCORE]
