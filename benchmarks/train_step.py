"""A training step, PyTorch's and sentence-transformers', in turn, on the same sentences and weights.

    python -m benchmarks.train_step [--data FILE] [--recipe unsup sup simcse_plus_plus pairs] [--base] [--chunk N]
        [--dtype float32 bfloat16] [--with FIELD=VALUE …] [--representax-python PYTHON] [--output FILE]

The peers are a PyTorch loop as the reference has it, eager and with `torch.compile`, and sentence-transformers' Trainer
with MultipleNegativesRankingLoss (it needs accelerate). With `--chunk N` we encode N examples at a time, the Trainer N
sentences of a column (its Cached loss), and the loop, which cannot, the whole batch. SimCSE++ has no peer: its step is
compared with our own step of unsupervised SimCSE, which encodes a sentence twice; SimCSE++ does so three times.
`pairs` (columns sent0 and sent1) is the recipe of representax, multiple negatives ranking with averaged tokens, and its
job the only peer; it has an environment of its own (`make .venv/representax/done`).
`--with train.round_products=True` adds our step with these fields of its config, `--flags` with flags of XLA's.
`benchmarks.training` defines a step, `benchmarks.work` the operations that are counted. A sentence (in sup: a triplet,
in pairs: a pair) is one example of the batch, however often it is encoded.
"""

import argparse
import ast
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import side_by_side
from benchmarks.options import Parser
from benchmarks.random_models import folder_of_model
from benchmarks.side_by_side import Comparison, Contender, Need, python_of
from benchmarks.step_options import add_options
from benchmarks.training import RECIPES, Setting, read_columns
from benchmarks.work import training_flops
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError

OURS, OUR_SIMCSE = "simcse_jax", "simcse_jax, SimCSE"
COST = 1.55  # of SimCSE++ in steps of SimCSE, at most


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.train_step", description=__doc__.splitlines()[0])
    data = "sentences, or for sup triplets sent0, sent1, hard_neg"
    add_options(parser, data=data, steps=4, warmup=4, rounds=5)
    parser.add_argument("--recipe", nargs="+", choices=RECIPES, default=["unsup", "simcse_plus_plus"])
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--chunk", type=int, default=0, help="examples encoded at a time (default: all)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all")
    parser.add_argument("--representax-python", default=sys.executable, help="of the environment that has representax")
    parser.add_argument("--flags", default="", metavar="XLA_FLAGS", help="ours once more, with these flags of XLA's")
    parser.add_argument(
        "--with", nargs="+", default=[], dest="fields", metavar="FIELD=VALUE", help="ours once more, so"
    )
    args = parser.parse_args()
    args.fields = fields_of(args.fields)
    return args


PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pytorch": ("benchmarks.training:pytorch", {}),
    "pytorch-compiled": ("benchmarks.training:pytorch", {"compiled": True}),
    "sentence-transformers": ("benchmarks.training:trainer", {}),
}


def main() -> None:
    """Prints each table when it is complete."""
    args = parse()
    print(side_by_side.heading(), flush=True)
    results = []
    with folder_of_model(args.base, args.model) as model:
        for recipe in args.recipe:
            for dtype in args.dtype:
                setting = Setting(
                    model=model,
                    data=args.data,
                    recipe=recipe,
                    dtype=dtype,
                    batch_size=args.batch_size,
                    max_length=args.max_length,
                    steps=args.steps,
                    warmup=args.warmup,
                    chunk_size=args.chunk,
                )
                results.append(measure(setting, args))
    side_by_side.report("train_step", results, args.output)


def measure(setting: Setting, args: argparse.Namespace) -> dict[str, Any]:
    """One table, printed, and its figures."""
    from simcse_jax.huggingface.resolve import resolve

    own = asdict(setting)
    contenders = [Contender(OURS, "benchmarks.training:ours", own)]
    if args.fields:
        changed = ", ".join(f"{name}={value}" for name, value in args.fields.items())
        options = own | {"fields": dict(args.fields)}
        contenders.append(Contender(f"{OURS}, {changed}", "benchmarks.training:ours", options))
    if args.flags:
        flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), args.flags]))
        name = f"{OURS}, XLA_FLAGS={args.flags}"
        contenders.append(Contender(name, "benchmarks.training:ours", own, environment={"XLA_FLAGS": flags}))
    if setting.recipe == "simcse_plus_plus":
        simcse = own | {"recipe": "unsup"}
        contenders.append(Contender(OUR_SIMCSE, "benchmarks.training:ours", simcse))
    elif setting.recipe == "pairs":
        options = own | {"model": str(resolve(setting.model))}
        python = python_of(args.representax_python)
        contenders.append(Contender("representax", "benchmarks.training:representax", options, python))
    else:
        for name in args.peers:
            factory, options = PEERS[name]
            contenders.append(Contender(name, factory, own | {"model": str(resolve(setting.model))} | options))
    needs = {one.name: need_of(setting, one.options["recipe"]) for one in contenders}
    chunks = f", chunks of {setting.chunk_size}" if setting.chunk_size else ""
    comparison = side_by_side.compare(
        f"{'BERT-base, ' if args.base else ''}{setting.recipe}, {setting.dtype}, batch {setting.batch_size}{chunks}",
        {"sup": "triplets", "pairs": "pairs"}.get(setting.recipe, "sentences"),
        contenders,
        args.rounds,
        needs=needs,
        order=args.order,
    )
    found = {"setting": own, **comparison.to_json()}
    print(f"\n{side_by_side.table(comparison)}", flush=True)
    built = ", ".join(f"{name} {each['built_in']:.0f} s" for name, each in found["contenders"].items())
    print(f"  read, compiled and warm after: {built}", flush=True)
    if setting.recipe == "simcse_plus_plus" and (cost := cost_of(comparison)):
        print(f"  a step costs {cost['steps']:.2f} of our SimCSE's (at most {COST}) and encodes", end=" ")
        print(f"{cost['rows_per_second']:.0f} rows a second, SimCSE's {cost['simcse_rows_per_second']:.0f}", flush=True)
        found["cost"] = cost
    return found


def fields_of(given: Sequence[str]) -> dict[str, Any]:
    """The values of a config's fields, by their dotted names.

    Raises:
      UserError: when there is no such field, or one has no value.
    """
    from simcse_jax.config.fields import default_config, flatten

    found, there = {}, flatten(default_config())
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or name not in there:
            raise UserError(f"--with {each}: must be a field of a config and its value, e.g. train.round_products=True")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def need_of(setting: Setting, recipe: str) -> Need:
    """The work for one example of a recipe, on average over the data; see `benchmarks.work`."""
    from simcse_jax.huggingface.published import encoder_config
    from simcse_jax.huggingface.resolve import resolve
    from simcse_jax.huggingface.tokenizer import Tokenizer

    config = encoder_config(setting.model, setting.num_layers)
    tokenizer = Tokenizer(resolve(setting.model), config)
    columns = read_columns(setting.data, recipe)
    lengths = [[len(ids) for ids in tokenizer(column, setting.max_length)] for column in columns]
    encoded = lengths * RECIPES[recipe][1] if len(lengths) == 1 else lengths
    return Need(training_flops(config, encoded), setting.dtype)


def cost_of(comparison: Comparison) -> dict[str, float] | None:
    """A step of SimCSE++ in steps of our SimCSE, round by round, and the rows that both encode; None if one failed."""
    if not (ratios := comparison.ratios(OUR_SIMCSE, OURS)):
        return None
    rows = {
        name: RECIPES[recipe][1] * statistics.median(comparison.rates(name))
        for name, recipe in ((OURS, "simcse_plus_plus"), (OUR_SIMCSE, "unsup"))
    }
    spread = side_by_side.spread(ratios)
    return {
        "steps": spread["median"],
        "steps_min": spread["min"],
        "steps_max": spread["max"],
        "rows_per_second": rows[OURS],
        "simcse_rows_per_second": rows[OUR_SIMCSE],
    }


if __name__ == "__main__":
    run_command(main)
