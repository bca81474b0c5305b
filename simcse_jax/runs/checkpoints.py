"""Checkpoints with Orbax: the two latest, the best, and every n-th; a killed save leaves the earlier ones intact."""

import contextlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import absl.logging
import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from simcse_jax.devices import processes
from simcse_jax.devices.parts import divide
from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import Folder, check_lock, is_remote, look_up_bucket, write_atomically
from simcse_jax.models.parameters import Params
from simcse_jax.runs.state import TrainState

SCORE, TOWER = "score", "tower"  # the metrics of a checkpoint
SAVE_SECONDS = 600  # for all processes to write their parts
DAMAGED = "damaged_checkpoints"  # the folder for checkpoints that cannot be read
DELETED = "deleted"  # where a checkpoint is moved before its files are removed, so that no kill leaves half of one


class _Owned(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, where its last object makes it count: only while the workdir's lock is this job's."""

    async def finalize(self) -> None:
        check_lock(self.get_final())
        await super().finalize()


class Checkpoints:
    """The checkpoints of a workdir, each named by the number of updates done."""

    def __init__(self, workdir: Folder, keep_every: int = 0, read_only: bool = False):
        """Opens `workdir/checkpoints`.

        Args:
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
        options = ocp.CheckpointManagerOptions(
            best_fn=_score,
            preservation_policy=policies.AnyPreservationPolicy(keep),
            cleanup_tmp_directories=not read_only,
            temporary_path_class=_Owned if is_remote(workdir) else None,
            todelete_subdir=None if read_only or is_remote(workdir) else DELETED,
            read_only=read_only,
            async_options=ocp.AsyncOptions(timeout_secs=SAVE_SECONDS),
            multiprocessing_options=_single_process() if read_only else ocp.options.MultiprocessingOptions(),
        )
        self._folder = epath.Path(workdir if is_remote(workdir) else workdir.absolute()) / "checkpoints"
        with contextlib.nullcontext() if read_only else processes.exit_together():  # each reader reads for itself
            if is_remote(self._folder) and not read_only:
                with self._readable():
                    look_up_bucket(self._folder)
            if read_only or processes.is_first():
                self._check_scores(read_only)
            self._read_only = read_only
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

        A damaged one (a missing or truncated file, a flipped bit) is moved to `damaged_checkpoints` with a message, and
        the one before it is read.

        Raises:
          UserError: when none of the checkpoints can be read, or their moments have another type.
        """
        errors = {}
        for step in reversed(self.steps):
            with processes.exit_together():
                self._check_type_of_mean(step, like)
            try:
                with processes.exit_together():
                    state = self._twice(self.restore, step, like)
            except UserError as error:
                errors[step] = error
                continue
            self._set_all_aside(errors, f"going back to step {step}")
            return state
        if errors:
            raise next(iter(errors.values()))
        return None

    def restore_best(self, like: Params) -> tuple[int, Params]:
        """The step and the parameters of the best checkpoint that can be read; damaged ones are set aside."""
        while True:
            best = self.best
            assert best is not None
            try:
                with processes.exit_together():
                    return best, self._twice(self.restore_params, best, like)
            except UserError as error:
                if len(self.steps) == 1:
                    raise
                self._set_all_aside({best: error}, "taking the next best")

    def _check_type_of_mean(self, step: int, like: TrainState) -> None:
        """Refuses a mean of gradients of another type than the run's, which Orbax would silently convert."""
        try:
            saved = ocp.StandardCheckpointHandler().metadata(self._folder / str(step) / "optimizer").tree
        except Exception:  # it is damaged, as reading it will show
            return
        was, wanted = _mean_dtypes(saved), _mean_dtypes(like.optimizer)
        if was and wanted and was != wanted:
            raise UserError(
                f"{self._folder}: step {step} has the optimizer's mu in {was}, and this run keeps it in {wanted}; "
                f"set train.mu_dtype={was}, or choose another workdir"
            )

    def _twice(self, read: Callable[..., Any], *args: Any) -> Any:
        # A network disk may fail once; a damaged file fails again.
        with contextlib.suppress(UserError):
            return read(*args)
        return read(*args)

    def _set_all_aside(self, errors: dict[int, UserError], instead: str) -> None:
        with processes.exit_together():  # no process looks again before they are moved
            for damaged, error in errors.items():
                if processes.is_first():
                    self._set_aside(damaged, f"{error}; {instead}")
        if errors:
            self._manager.reload()

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The state saved at `step`, with the shapes and the placement of `like`."""
        restored = self._restore(step, **_items(like))
        kept = restored.kept if like.kept else {}
        return TrainState(restored.optimizer["step"], restored.params, restored.optimizer["optimizer"], kept)

    def restore_params(
        self, step: int, like: Mapping[str, jax.Array | jax.ShapeDtypeStruct], *, extra: bool = False
    ) -> Params:
        """Only the parameters saved at `step`, with the placement of `like`; if it has none, on one device here.

        Args:
          step: of a saved state.
          like: the parameters to restore.
          extra: whether the checkpoint may have further parameters, those of a user's own objective.
        """
        wanted: dict[str, Any] = dict(like)
        if extra:
            with self._readable(step):
                saved = ocp.PyTreeCheckpointHandler().metadata(self._folder / str(step) / "params").tree
            shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in saved.items()}
            wanted = shapes | wanted
        params = self._restore(step, params=wanted).params
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

    def _check_scores(self, read_only: bool) -> None:
        """Sets checkpoints with a damaged score aside: Orbax reads all scores before it opens any checkpoint."""
        for path in sorted(self._folder.glob("*/metrics/metrics")) if self._folder.exists() else ():
            if not path.parent.parent.name.isdigit():
                continue  # from a save that is running or was killed: Orbax removes it
            try:
                metrics = json.loads(path.read_text())
            except FileNotFoundError:
                continue  # the run has removed it meanwhile
            except (ValueError, RecursionError):
                metrics = {}
            if metrics is None or (isinstance(metrics, dict) and type(metrics.get(SCORE)) in (int, float)):
                continue  # Orbax's null, or a score
            problem = f"{path}: damaged"
            if read_only:
                raise UserError(f"{problem}; start the run again, which sets that checkpoint aside")
            self._set_aside(int(path.parent.parent.name), problem)

    def _set_aside(self, step: int, problem: str) -> None:
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
            saved = [int(path.name) for path in self._folder.iterdir() if path.name.isdigit()]
            last_saved = f"the last good one is that of step {max(saved)}" if saved else "none was saved yet"
            code = re.search(r"os_error_code='(\d+)'", str(error))  # tensorstore's message is long
            why = os.strerror(int(code[1])) if code else reason(error)
            raise UserError(
                f"{self._folder}: a checkpoint cannot be saved: {why}; {last_saved}. "
                "Make room, or make the folder writable; the same command resumes there"
            ) from None

    def close(self) -> None:
        """Waits for running saves."""
        with self._writable():
            self._manager.close()
            self._remove_deleted()

    def _remove_deleted(self) -> None:
        if not self._read_only and processes.is_first() and not is_remote(self._folder):
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


def _mean_dtypes(optimizer: Any) -> str:
    """The types of AdamW's mean of gradients, `mu` in optax; empty for an optimizer without one."""
    leaves = jax.tree_util.tree_leaves_with_path(optimizer)
    mean = [leaf for path, leaf in leaves if any(getattr(key, "name", getattr(key, "key", "")) == "mu" for key in path)]
    return " and ".join(sorted({jnp.dtype(leaf.dtype).name for leaf in mean}))


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
