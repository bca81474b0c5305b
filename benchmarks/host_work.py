"""The host's work for a training step: reading its batch, placing it, dispatching the step, logging its metrics.

    python -m benchmarks.host_work [--layers 1 12] [--batch-size 64] [--rounds 5] [--output FILE]

It is the loop of a run, `simcse_jax.training.loop`, with a log line every 25 steps, but without evaluations. The step
that is dispatched has the arguments and the results of a real one, and computes nothing; so the devices wait for the
host, and all time is the host's. Dispatching takes time for each array of parameters and moments: a BERT of one layer
has 59, one of twelve layers 455. The time is the main thread's, of the processor; other processes hardly change that.
By the clock it is the same on an idle machine.
"""

import argparse
import atexit
import contextlib
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import side_by_side
from benchmarks.contender import Done, Round
from benchmarks.options import Parser
from benchmarks.random_models import MINILM, make
from benchmarks.side_by_side import Comparison, Contender
from benchmarks.step_options import SENTENCES
from benchmarks.training import TOTAL_STEPS, Setting, config_of
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

TARGET = 0.3  # milliseconds a step, of one layer and a batch of 64


def steps(**options: Any) -> Round:
    """A contender (see `benchmarks.contender`): a round trains some steps, which compute nothing.

    Its work is steps, its seconds are those of the main thread's processor.

    Args:
      options: those of `Setting`.
    """
    import jax
    import tensorboardX  # noqa: F401  # the first log line would import it

    from simcse_jax.devices.preemption import Preemption
    from simcse_jax.runs.metrics_file import Metrics
    from simcse_jax.runs.reporters.tensorboard import TensorBoard
    from simcse_jax.runs.workdir import Workdir
    from simcse_jax.training import programs
    from simcse_jax.training.loop import Training
    from simcse_jax.training.patience import Patience
    from simcse_jax.training.run import read_inputs
    from simcse_jax.training.setup import make_setup
    from simcse_jax.training.step import METRICS

    setting = Setting(**options)
    config = config_of(setting)
    setup = make_setup(config, read_inputs(config))
    batches, settings, state = setup.batches(), setup.settings(), setup.state()

    def count(state: Any, batch: Any, settings: Any, frozen: Any = None) -> Any:
        """The state as it is, but for its step."""
        return state._replace(step=state.step + 1), dict.fromkeys(METRICS, settings["learning_rate"])

    programs.make_step = lambda *_: jax.jit(count, donate_argnums=0, keep_unused=True)
    updates = programs.Updates(setup, batches)
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)  # it is needed until this process ends
    metrics = Metrics(Path(folder.name), None)
    metrics.add(TensorBoard(Path(folder.name), None))
    workdir, checkpoints = Workdir(Path(folder.name)), SimpleNamespace(wait=list)

    class Unsaved(Training):
        """A run without what is due between steps, other than log lines."""

        def look(self, *_: Any) -> None:
            """Nothing."""

    training = Unsaved(setup, workdir, Patience(0), batches, updates, settings, checkpoints, metrics=metrics)
    done = 0

    def go(number: int) -> tuple[float, float]:
        nonlocal state, done
        done += number
        training.setup = replace(setup, schedule=setup.schedule._replace(total=done))
        with contextlib.closing(Preemption()) as preemption:
            processor, clock = time.thread_time(), time.perf_counter()
            state = training.train(state, preemption)
            return time.thread_time() - processor, time.perf_counter() - clock

    first = setup.read(batches, 0)
    for step in range(TOTAL_STEPS):  # all programs, before any step is timed
        updates.compile(step, state, first, settings)
    go(setting.warmup)

    def do_round() -> Done:
        processor, clock = go(setting.steps)
        return Done(setting.steps, {"clock_seconds": clock, "arrays": len(jax.tree.leaves(state))}, processor)

    return do_round


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.host_work", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=SENTENCES, help="sentences: .txt, or a .csv with sent0; or a prepared corpus")
    parser.add_argument(
        "--layers", type=int, least=1, most=12, nargs="+", default=[1, 12], help="of the models, from 1 to 12"
    )
    parser.add_argument("--batch-size", type=int, least=1, default=64)
    parser.add_argument("--max-length", type=int, least=1, default=32, help="tokens")
    parser.add_argument("--devices", type=int, least=1, default=1)
    parser.add_argument("--steps", type=int, least=1, default=500, help="of a round")
    parser.add_argument("--rounds", type=int, least=1, default=5)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    return parser.parse_args()


def figures(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Of each model: milliseconds a step, of the processor and by the clock, over the rounds; its number of arrays."""
    return {
        name: {
            "processor_ms": side_by_side.spread([1e3 * each["seconds"] / each["work"] for each in rounds]),
            "clock_ms": side_by_side.spread([1e3 * each["notes"]["clock_seconds"] / each["work"] for each in rounds]),
            "arrays": rounds[-1]["notes"]["arrays"],
        }
        for name, rounds in comparison.rounds.items()
        if rounds
    }


def main() -> None:
    """Prints a line a model."""
    args = parse()
    print(side_by_side.heading(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make("narrow", folder, MINILM)
        contenders = []
        for layers in args.layers:
            setting = Setting(
                model=folder,
                data=args.data,
                batch_size=args.batch_size,
                max_length=args.max_length,
                steps=args.steps,
                warmup=args.steps // 2,
                num_layers=layers,
                devices=args.devices,
            )
            name = f"{layers} layer{'s' if layers > 1 else ''}"
            contenders.append(Contender(name, "benchmarks.host_work:steps", asdict(setting)))
        title = f"host work, batch {args.batch_size}"
        comparison = side_by_side.compare(title, "steps", contenders, args.rounds)
    found = figures(comparison)
    print()
    for name, each in found.items():
        processor, clock = each["processor_ms"], each["clock_ms"]
        print(f"{name}, {each['arrays']} arrays: {processor['median']:.3f} ms a step", end=" ")
        print(f"({processor['min']:.3f} to {processor['max']:.3f}; by the clock {clock['median']:.3f})", flush=True)
    for name, reason in comparison.missing.items():
        print(f"missing: {name}: {reason}")
    print(f"to reach with one layer and a batch of 64: {TARGET} ms")
    side_by_side.report("host_work", [{**comparison.to_json(), "host_work": found}], args.output)


if __name__ == "__main__":
    run_command(main)
