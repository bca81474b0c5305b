"""The runs of a sweep: which are done, which are to be done, and what they measured."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import config_dict

from simcse_jax import workdir as workdir_lib
from simcse_jax.config import flatten
from simcse_jax.errors import Preempted, UserError
from simcse_jax.models.weight_files import read_json
from simcse_jax.sweeps.variants import Variant
from simcse_jax.sweeps.vectorized import group_key, train_together
from simcse_jax.train import train_and_evaluate

Scores = dict[str, dict[int, dict[str, float]]]  # variant -> seed -> metric -> value


class Run(NamedTuple):
    """A variant with a seed."""

    variant: str
    seed: int
    config: config_dict.ConfigDict
    workdir: Path

    def is_done(self) -> bool:
        """Whether it has its test scores.

        Raises:
          UserError: when its folder holds a run of another config.
        """
        if not (self.workdir / "result.json").is_file():
            return False
        workdir_lib.check_same_run(self.workdir, self.config, {})
        return True


def all_runs(
    variants: Sequence[tuple[Variant, config_dict.ConfigDict]], seeds: Sequence[int], folder: Path
) -> list[Run]:
    """Every variant with every seed, seed by seed, so that the table fills evenly.

    Raises:
      UserError: when a variant has nothing to be scored by.
    """
    runs = []
    for seed in seeds:
        for variant, base in variants:
            if not base.eval.data:
                raise UserError(f"variant {variant.name!r}: config.eval.data is empty; a sweep is a table of scores")
            config = base.copy_and_resolve_references().unlock()
            config.seed = seed
            runs.append(Run(variant.name, seed, config, folder / variant.name / f"seed{seed}"))
    return runs


def run_all(runs: Sequence[Run], vectorize: bool) -> list[str]:
    """Does what is not done yet; a run that was stopped goes on where it was.

    A run that goes wrong (a loss that is not finite, data that is missing) does not keep the others from theirs.

    Returns:
      What went wrong, a line a run.

    Raises:
      Preempted: at a SIGTERM; the run under way has saved itself.
    """
    pending = [run for run in runs if not run.is_done()]
    print(f"{len(runs)} runs, {len(runs) - len(pending)} of them done", flush=True)
    problems: list[str] = []
    groups: list[list[Run]] = []
    for run in pending:
        key = group_key(run.config) if vectorize else None
        group = next((group for group in groups if key and group_key(group[0].config) == key), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        for group in groups:
            if told:  # behind the last step of a run, which has no use for it
                raise Preempted("SIGTERM: the same command goes on from there")
            problems += _run(group)
    finally:
        signal.signal(signal.SIGTERM, before)
    return problems


def _run(group: Sequence[Run]) -> list[str]:
    """Trains a run, or several together; what went wrong."""
    names = ", ".join(f"{run.variant} (seed {run.seed})" for run in group)
    print(f"=== {names}", flush=True)
    try:
        if len(group) == 1:
            train_and_evaluate(group[0].config, str(group[0].workdir))
        else:
            train_together([run.config for run in group], [run.workdir for run in group])
    except UserError as error:
        print(f"error: {error}", flush=True)
        return [f"{names}: {error}"]
    return []


def read_scores(runs: Sequence[Run]) -> Scores:
    """What the finished runs measured; a metric that a run does not have is left out.

    `stsb_dev` is the best of the development scores (of `eval.data` if that is a file), by which the checkpoint
    was chosen; `sts_avg` that checkpoint's average over the test tasks, where none is missing; `training_minutes`
    without evaluations and compilation.
    """
    scores: Scores = {}
    for run in runs:
        seeds = scores.setdefault(run.variant, {})
        if not run.is_done():
            continue
        lines = [json.loads(line) for line in (run.workdir / "metrics.jsonl").read_text("utf-8").splitlines()]
        # Step 0 is no candidate for the best checkpoint.
        developments = [line[name] for line in lines if line["step"] for name in line if name.startswith("eval/")]
        measured: dict[str, Any] = {
            "stsb_dev": max(developments, default=None),
            "sts_avg": read_json(run.workdir / "result.json").get("average"),
            "training_minutes": sum(line.get("seconds", 0.0) for line in lines) / 60,
        }
        seeds[run.seed] = {name: value for name, value in measured.items() if value is not None}
    return scores


def what_was_run(runs: Sequence[Run]) -> str:
    """One line for below the table: the model, the data and the size that all runs have in common."""
    fields = [flatten(run.config) for run in runs]
    names = ("model.init_from", "model.num_layers", "data.train", "train.batch_size", "train.max_steps", "train.epochs")
    names += ("train.learning_rate", "eval.tasks")
    common = [f"{name}={_text(fields[0][name])}" for name in names if all(f[name] == fields[0][name] for f in fields)]
    return ", ".join(common)


def what_it_ran_on(runs: Sequence[Run]) -> str:
    """One line for below the table: versions and device, of the first run that is there."""
    path = next((run.workdir / "run.json" for run in runs if (run.workdir / "run.json").is_file()), None)
    if path is None:
        return ""
    run = read_json(path)
    names = ("simcse_jax", "jax", "flax", "optax", "numpy", "transformers", "tokenizers")
    versions = ", ".join(f"{name} {run['versions'][name]}" for name in names if name in run["versions"])
    device = run["device"]
    return f"{versions}; Python {run['versions']['python']}; {device['count']} × {device['kind']}"


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
