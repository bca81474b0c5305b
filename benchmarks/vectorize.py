"""Eight seeds in one program against eight in turn: the step of `sweep.vectorize` and that of a run alone.

    python -m benchmarks.vectorize [--runs 8] [--batch-size 16] [--num-layers 3] [--steps 10] [--dtype bfloat16]

Both train MiniLM (`--model`) with unsupervised SimCSE on the project's own sentences; compilation is not counted.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import side_by_side
from benchmarks.random_models import MINILM
from simcse_jax.commands.command_line import Parser, run_command
from simcse_jax.config.fields import default_config
from simcse_jax.data.batches import Batches
from simcse_jax.devices.backend import keep_compilations
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.host.outputs import output_file
from simcse_jax.models.config import DTYPES
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.state import TrainState, initial_params
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.setup import make_recipe, make_settings
from simcse_jax.training.step import init_state, make_step


def main() -> None:
    """Times the two in turn, A B A B …, and prints sentences per second."""
    parser = Parser(prog="benchmarks.vectorize", description=__doc__.splitlines()[0])
    for name, default in (("runs", 8), ("batch-size", 16), ("num-layers", 3), ("steps", 10), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, least=1, default=default)
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    keep_compilations()
    config = default_config()
    config.model.init_from, config.model.num_layers = args.model, args.num_layers
    config.train.dtype = args.dtype
    config.data.train, config.data.columns.anchor = "examples/everyday/triplets.csv", "sent0"
    config.train.batch_size, config.parallel.devices = args.batch_size, 1
    config.eval.data = ""
    inputs = read_inputs(config)
    model, corpus = inputs.model, inputs.corpus
    graph, _ = build(model.config, with_head=True, dtype=jnp.dtype(args.dtype))
    mesh, recipe = data_mesh(jax.local_devices()[:1]), make_recipe(config, 1)

    states, settings, batches = [], [], []
    for seed in range(args.runs):
        config.seed = seed
        settings.append(make_settings(config, total_steps=1000))
        states.append(init_state(initial_params(config, model), settings[-1]))
        batches.append(Batches(corpus, args.batch_size, seed))

    def stack(trees: list) -> object:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    together = TrainState(states[0].step, *stack([state[1:] for state in states]))
    all_settings = stack(settings)
    alone, at_once = make_step(graph, recipe, mesh), make_step(graph, recipe, mesh, together=True)

    def in_turn(steps: int) -> None:
        for run in range(args.runs):
            for number in range(steps):
                states[run], _ = alone(states[run], batches[run][number], settings[run])
            jax.block_until_ready(states[run])

    def in_one(steps: int) -> None:
        nonlocal together
        for number in range(steps):
            together, _ = at_once(together, stack([each[number] for each in batches]), all_settings)
        jax.block_until_ready(together)

    states = [jax.tree.map(np.asarray, state) for state in states]
    times: dict[str, list[float]] = {"in turn": [], "together": []}
    in_turn(2), in_one(2)  # compiled, and traced once more for states that are on devices
    for _ in range(args.rounds):
        for name, function in (("in turn", in_turn), ("together", in_one)):
            started = time.perf_counter()
            function(args.steps)
            times[name].append(time.perf_counter() - started)
    sentences = args.runs * args.steps * args.batch_size
    found = {name: side_by_side.spread([sentences / second for second in seconds]) for name, seconds in times.items()}
    for name, rate in found.items():
        print(f"{name}: {rate['median']:.1f} sentences/s ({rate['min']:.1f} to {rate['max']:.1f})")
    ratios = [first / second for first, second in zip(times["in turn"], times["together"], strict=True)]
    print(f"together / in turn: {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")
    how = f"{args.runs} runs, batch {args.batch_size}, {args.num_layers} layers, {args.dtype}"
    print(f"{how}, {jax.devices()[0].device_kind}")
    figures = [(f"{how}: {name}", rate["median"], "sentences/s") for name, rate in found.items()]
    figures.append((f"{how}: together / in turn", statistics.median(ratios), "x"))
    result = {"title": how, "rates": found, "ratios": ratios, "device": jax.devices()[0].device_kind}
    side_by_side.report("vectorize", [result | {"figures": figures}], args.output)


if __name__ == "__main__":
    run_command(main)
