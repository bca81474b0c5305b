"""Checkpoints with Orbax: the two latest, the best, and every n-th; a killed save leaves the earlier ones intact."""

import contextlib
import json
import logging
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import absl.logging
import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from simcse_jax.devices import processes
from simcse_jax.devices.parts import divide
from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import Folder, check_lock, is_remote, write_atomically
from simcse_jax.models.parameters import Params
from simcse_jax.runs.state import TrainState

SCORE, TOWER = "score", "tower"  # the metrics of a checkpoint
SAVE_SECONDS = 600  # for all processes to write their parts
DAMAGED = "damaged_checkpoints"  # the folder for checkpoints that cannot be read
DELETED = "deleted"  # where a checkpoint is moved before its files are removed, so that no kill leaves half of one

T = TypeVar("T")


class _Owned(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, where its last object makes it count: only while the workdir is this job's."""

    async def finalize(self) -> None:
        check_lock(self.get_final())
        await super().finalize()


class Checkpoints:
    """The checkpoints of a workdir, each named by the number of updates done."""

    def __init__(self, workdir: Folder, keep_every: int = 0, read_only: bool = False):
        """Opens `workdir/checkpoints`.

        Args:
          workdir: of the run.
          keep_every: also keep the checkpoint of every n-th step; 0: only the two latest and the best.
          read_only: for commands that only load.
        """
        # Orbax logs every file that it touches, and pages for a save that fails; we print one line.
        absl.logging.set_verbosity(absl.logging.FATAL)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        sys.unraisablehook = _unraisable
        policies = ocp.checkpoint_managers
        keep = [
            policies.LatestN(2),  # two, so that one is left if the newest is damaged
            policies.BestN(get_metric_fn=_score, n=1, keep_checkpoints_without_metrics=False),
            policies.CustomSteps([0]),  # the start, of a run that saves it
        ]
        if keep_every:
            keep.append(policies.EveryNSteps(keep_every))
        remote = is_remote(workdir)
        options = ocp.CheckpointManagerOptions(
            best_fn=_score,
            preservation_policy=policies.AnyPreservationPolicy(keep),
            cleanup_tmp_directories=not read_only,
            temporary_path_class=_Owned if remote else None,
            todelete_subdir=None if read_only or remote else DELETED,
            read_only=read_only,
            async_options=ocp.AsyncOptions(timeout_secs=SAVE_SECONDS),
            multiprocessing_options=_single_process() if read_only else ocp.options.MultiprocessingOptions(),
        )
        self._folder = epath.Path(workdir if remote else workdir.absolute()) / "checkpoints"
        self._removes = not (read_only or remote) and processes.is_first()
        if not read_only:
            with processes.exit_together():
                if remote:
                    self._look_up_bucket()
                if processes.is_first():
                    self._set_aside(self._damaged_scores())
        self._remove_deleted()
        with self._readable():
            self._manager = ocp.CheckpointManager(self._folder, options=options)

    @property
    def steps(self) -> list[int]:
        """All steps that were saved completely and are kept, in order."""
        return sorted(self._manager.all_steps())

    @property
    def latest(self) -> int | None:
        """The newest step that was saved completely."""
        return self._manager.latest_step()

    @property
    def best(self) -> int | None:
        """The step with the best score; without any evaluation, the newest."""
        best = self._manager.best_step()
        return self.latest if best is None else best

    def tower(self, step: int) -> int:
        """Which of two encoders is the model of a checkpoint: 1 for the second one, if it scored better."""
        return (self._manager.metrics(step) or {}).get(TOWER, 0)

    def save(self, state: TrainState, score: float | None, tower: int = 0) -> None:
        """Saves in the background; the arrays may be donated as soon as this returns."""
        items = _items(state)
        with self._writable():
            self._manager.wait_until_finished()
            self._remove_deleted()
            self._manager.save(
                int(state.step),
                args=ocp.args.Composite(
                    **{name: ocp.args.StandardSave(item) for name, item in items.items()},
                    checksum=ocp.args.JsonSave({name: int(checksum(item)) for name, item in items.items()}),
                ),
                metrics=None if score is None else {SCORE: score} | ({TOWER: tower} if tower else {}),
            )

    def wait(self) -> None:
        """Waits for running saves."""
        with processes.exit_together(), self._writable():
            self._manager.wait_until_finished()

    def resume(self, like: TrainState) -> TrainState | None:
        """The newest state that can be read, with the shapes and the placement of `like`; None if none was saved.

        A damaged one (a missing or truncated file, a flipped bit) is moved to `damaged_checkpoints` with a message.

        Raises:
          UserError: when none of the checkpoints can be read.
        """
        steps = reversed(self.steps)
        return self._first_readable(steps, lambda step: self.restore(step, like))[1] if self.steps else None

    def restore_best(self, like: Params) -> tuple[int, Params]:
        """The step and the parameters of the best checkpoint that can be read; damaged ones are set aside."""
        best = self.best
        scores = {step: (self._manager.metrics(step) or {}).get(SCORE, -math.inf) for step in self.steps}
        steps = sorted(self.steps, key=lambda step: (step == best, scores[step], step))
        return self._first_readable(reversed(steps), lambda step: self.restore_params(step, like))

    def _first_readable(self, steps: Iterable[int], read: Callable[[int], T]) -> tuple[int, T]:
        errors: dict[int, str] = {}
        for step in steps:
            try:
                with processes.exit_together():
                    found = read(step)
            except UserError as error:
                errors[step] = str(error)
                continue
            with processes.exit_together():  # no process looks again before they are moved
                if processes.is_first():
                    self._set_aside({old: f"{error}; going on with step {step}" for old, error in errors.items()})
            if errors:
                self._manager.reload()
            return step, found
        raise UserError(next(iter(errors.values())))

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The state saved at `step`, with the shapes and the placement of `like`."""
        restored = self._restore(step, **_items(like))
        kept = restored.kept if like.kept else {}
        return TrainState(restored.optimizer["step"], restored.params, restored.optimizer["optimizer"], kept)

    def restore_params(self, step: int, like: Mapping[str, jax.Array | jax.ShapeDtypeStruct]) -> Params:
        """Only the parameters saved at `step`, with the placement of `like`; if it has none, on one device here.

        A checkpoint may have further parameters, those of a user's own objective.
        """
        with self._readable(step):
            saved = ocp.PyTreeCheckpointHandler().metadata(self._folder / str(step) / "params").tree
        shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in saved.items()}
        params = self._restore(step, params=shapes | dict(like)).params
        return {name: params[name] for name in like}

    def _restore(self, step: int, **items: Any) -> ocp.args.Composite:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        several = jax.process_count() > 1

        def placement(array: Any) -> jax.sharding.Sharding:
            return getattr(array, "sharding", None) or sharding  # the run's devices may not be here

        def describe(array: Any) -> jax.ShapeDtypeStruct:
            wanted = placement(array)
            if several and isinstance(wanted, NamedSharding):  # each reads all: of a damaged file, all of them fail
                wanted = NamedSharding(wanted.mesh, PartitionSpec())
            return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=wanted)

        args = {name: ocp.args.StandardRestore(jax.tree.map(describe, item)) for name, item in items.items()}
        with self._readable(step):
            restored = self._manager.restore(step, args=ocp.args.Composite(**args, checksum=ocp.args.JsonRestore()))
            for name in items:
                if int(checksum(restored[name])) != restored.checksum[name]:
                    raise ValueError(f"{name} differ from what was saved: the checksum is wrong")
            if not several:
                return restored
            return ocp.args.Composite(
                **{name: divide(restored[name], jax.tree.map(placement, item)) for name, item in items.items()}
            )

    def _damaged_scores(self) -> dict[int, str]:
        """The steps with a damaged score, and what to say: Orbax reads all scores before it opens any checkpoint."""
        damaged = {}
        for path in self._folder.glob("*/metrics/metrics"):
            with contextlib.suppress(FileNotFoundError):
                try:
                    json.loads(path.read_text())
                except (ValueError, RecursionError):
                    if path.parent.parent.name.isdigit():  # not that of a killed save, which Orbax removes
                        damaged[int(path.parent.parent.name)] = f"{path}: damaged"
        return damaged

    def _set_aside(self, damaged: Mapping[int, str]) -> None:
        for step, problem in damaged.items():
            target = self._folder.parent / DAMAGED / str(step)
            # A store has a folder only with something in it, and nothing can be moved before.
            write_atomically(target.parent / f"{step}.txt", f"{problem}\n")
            try:
                if target.exists():
                    target.rmtree()
                (self._folder / str(step)).rename(target)
            except Exception as error:  # an OSError, or an error of a store's client
                raise UserError(f"{problem}; it cannot be moved to {target}: {reason(error)}") from None
            processes.say(f"{problem}; it was moved to {DAMAGED}/{step}")

    def _look_up_bucket(self) -> None:
        """As Orbax does before it deletes a checkpoint: a missing right shows now, not hours later."""
        from google.cloud import storage

        with self._readable():
            storage.Client().get_bucket(str(self._folder).removeprefix("gs://").split("/")[0])

    @contextlib.contextmanager
    def _readable(self, step: int | None = None) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax and tensorstore raise many kinds
            of_step = "" if step is None else f" step {step}"
            raise UserError(f"{self._folder}:{of_step} cannot be read: {reason(error)}") from None

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except UserError:  # another job has the workdir
            raise
        except Exception as error:
            code = re.search(r"os_error_code='(\d+)'", str(error))  # tensorstore's message is long
            why = os.strerror(int(code[1])) if code else reason(error)
            cure = "make room, or make the folder writable; the same command resumes from the last good one"
            raise UserError(f"{self._folder}: a checkpoint cannot be saved: {why}; {cure}") from None

    def close(self) -> None:
        """Waits for running saves."""
        with self._writable():
            self._manager.close()
            self._remove_deleted()

    def _remove_deleted(self) -> None:
        if self._removes:
            shutil.rmtree(self._folder / DELETED, ignore_errors=True)


@jax.jit
def checksum(tree: Any) -> jax.Array:
    """A 32-bit number that changes with any bit of any array of the tree: Orbax does not notice a flipped bit.

    It uses integer sums, so it is the same on any number of devices: Σ_i (2i + 1)·bits_i mod 2³², summed over the
    arrays with odd factors. With an odd factor no power of two vanishes.
    """
    total = jnp.zeros((), jnp.uint32)
    for number, array in enumerate(jax.tree.leaves(tree)):
        bits = jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}").astype(jnp.uint32)
        place = jnp.zeros((), jnp.uint32)  # i, without a flat copy: the array may be split over the devices
        for axis, size in enumerate(bits.shape):
            place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        total += jnp.uint32(2 * number + 1) * jnp.sum((2 * place + 1) * bits, dtype=jnp.uint32)
    return total


def _items(state: TrainState) -> dict[str, Any]:
    """The parts of a checkpoint, each in a folder of its own; `kept` is there only if an objective keeps something."""
    items = {"params": state.params, "optimizer": {"step": state.step, "optimizer": state.optimizer}}
    return items | ({"kept": state.kept} if state.kept else {})


def _single_process() -> ocp.options.MultiprocessingOptions:
    me = jax.process_index()
    several = {"primary_host": me, "active_processes": {me}, "barrier_sync_key_prefix": f"reader{me}"}
    return ocp.options.MultiprocessingOptions(**several if jax.process_count() > 1 else {})


def _unraisable(problem: Any) -> None:
    # tensorstore's other reads and writes when one fails; each would print a traceback.
    if not str(problem.exc_value).startswith(("Event loop is closed", "Encountered error while reading array")):
        sys.__unraisablehook__(problem)


def _score(metrics: dict[str, float]) -> float:
    return metrics[SCORE]
