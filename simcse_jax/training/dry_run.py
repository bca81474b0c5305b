"""`--dry-run`: the time and memory of a run. Reads its inputs and makes its first steps, but writes nothing."""

import os
import time

import jax

from simcse_jax.config.sections import Section
from simcse_jax.devices import processes
from simcse_jax.host.storage import as_path
from simcse_jax.runs.reporters.opening import check_installed
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.inputs import Inputs
from simcse_jax.training.programs import Updates
from simcse_jax.training.run import count_fold_steps, read
from simcse_jax.training.setup import make_setup

STEPS = 4  # to make; the first step of each program is not timed


def dry_run(config: Section, workdir: str = "") -> None:
    """Checks a run as its start does, and prints its number of steps, their memory and their time."""
    check_installed(config.train.report_to)
    processes.initialize(config.parallel.processes, config.parallel.process_id, config.parallel.coordinator)
    folder = Workdir(as_path(workdir)) if workdir else None
    with processes.exit_together():
        inputs = read(config, folder)
    steps = inputs.total_steps
    of_folds = sum(count_fold_steps(config, inputs))
    before = f"; before them {of_folds:,} steps of the {config.data.folds} folds' models" if of_folds else ""
    processes.say(describe(inputs, config.train.batch_size, config.eval.every) + before)
    if not steps:
        return
    setup = make_setup(config, inputs)
    state, batches, settings = setup.state(), setup.batches(), setup.settings()
    updates = Updates(setup, batches, setup.fold_batches())
    taken = []
    for step in range(min(STEPS, steps)):
        batch = setup.read(batches, step)
        compiled = updates.compile(step, state, batch, settings)
        started = time.perf_counter()
        state, metrics = updates(step, state, batch, settings)
        jax.block_until_ready(metrics)
        if not compiled:
            taken.append(time.perf_counter() - started)
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")  # of a CPU there is none
    limit = limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processes.say(f"memory: {updates.memory / 2**30:.2f} of {limit / 2**30:.0f} GiB on each device")
    if taken:
        fastest = min(taken)
        duration = format_duration(fastest * (steps + of_folds))
        processes.say(f"a step takes {fastest:.3g} s, all of them {duration}, evaluations not counted")
    processes.say("nothing was written")


def describe(inputs: Inputs, batch_size: int, score_every: int) -> str:
    """The run's steps in one line; `score_every` is the number of steps between evaluations."""
    if not inputs.total_steps:
        return "nothing is trained: config.train.epochs and max_steps are 0"
    epochs = inputs.total_steps * batch_size / inputs.num_examples
    text = f"{inputs.total_steps:,} steps of {batch_size} examples, {epochs:.3g} epochs"
    scored = f", scored every {score_every:,} steps" if inputs.evaluation and score_every else ""
    return text + scored + f", on {len(inputs.devices)} device{'s'[: len(inputs.devices) - 1]}"


def format_duration(seconds: float) -> str:
    """A duration: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
