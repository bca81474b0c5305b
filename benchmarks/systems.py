"""A training step of each system next to one of unsupervised SimCSE, in turn, on the same sentences and weights.

    python -m benchmarks.systems [--data FILE] [--base] [--system NAME …] [--dtype bfloat16] [--output FILE]

The batch and the longest sentence are the same for both, whatever the recipe says: 64 sentences of at most 32 tokens.
SCD has 192 on both sides; contrastive tension, which trains two encoders, stands next to SimCSE with two encoders;
DeCLUTR's anchors and positives are spans of 16 to 32 word pieces. DiffCSE's generator is a DistilBERT with half the
encoder's layers and random weights. `benchmarks.training` defines a step.
"""

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks import side_by_side
from benchmarks.options import Parser
from benchmarks.random_models import folder_of_model, make
from benchmarks.side_by_side import Contender
from benchmarks.step_options import add_options
from benchmarks.training import Setting, read_columns
from simcse_jax.commands.command_line import run_command

SHORT = {"data.spans.shortest": 16, "data.spans.longest": 32, "data.spans.tokens": 128}


class System(NamedTuple):
    """What is timed, and the SimCSE it stands next to."""

    recipe: str
    bound: float | None = None  # of a step in steps of that SimCSE, for BERT-base in float32
    fields: Mapping[str, Any] = MappingProxyType({})
    simcse: Mapping[str, Any] = MappingProxyType({})  # fields of that SimCSE
    batches: int = 1  # how many of `--batch-size` make one batch of both


SYSTEMS = {
    "SimCSE++": System("simcse_plus_plus", 1.55),
    "CT": System("ct", 1.1, simcse={"model.dual_encoder": True}),
    "ConSERT": System("consert", 1.05),
    "SCD": System("scd", 1.3, batches=3),
    "IS-BERT": System("is_bert"),
    "DeCLUTR": System("declutr:short", fields=SHORT),
    "ESimCSE": System("esimcse"),
    "DiffCSE": System("diffcse", 3.2),
    "DiffCSE + SimCSE++": System("diffcse:simcse_plus_plus"),
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.systems", description=__doc__.splitlines()[0])
    add_options(parser, data="sentences", steps=2, warmup=2, rounds=3)
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    return parser.parse_args()


def main() -> None:
    """Prints each system's line when it is complete."""
    args = parse()
    print(side_by_side.heading(), flush=True)
    with folder_of_model(args.base, args.model) as model, tempfile.TemporaryDirectory() as scratch:
        generator, documents = Path(scratch) / "generator", Path(scratch) / "documents.txt"
        if any(SYSTEMS[name].recipe.startswith("diffcse") for name in args.system):
            make("generator", str(generator), model)
        write_documents(documents, read_columns(args.data, "unsup")[0])
        results = [measure(name, args, model, generator, documents) for name in args.system]
    side_by_side.report("systems", results, args.output)


def write_documents(file: Path, sentences: list[str]) -> None:
    """Documents of 128 words or more, of sentences in their order."""
    words, document, documents = 0, [], []
    for sentence in sentences:
        document.append(sentence)
        words += len(sentence.split())
        if words >= SHORT["data.spans.tokens"]:
            documents.append("\n".join(document))
            words, document = 0, []
    file.write_text("\n\n".join(documents) + "\n")


def measure(name: str, args: argparse.Namespace, model: str, generator: Path, documents: Path) -> dict[str, Any]:
    """One system's figures, printed."""
    system = SYSTEMS[name]
    base = Setting(
        model=model,
        data=args.data,
        dtype=args.dtype,
        batch_size=args.batch_size * system.batches,
        max_length=args.max_length,
        steps=args.steps,
        warmup=args.warmup,
    )
    own = asdict(base) | {"recipe": system.recipe, "fields": dict(system.fields)}
    if system.recipe.startswith("diffcse"):
        own["fields"]["model.generator"] = str(generator)
    if system.recipe.startswith("declutr"):
        own["data"] = str(documents)
    simcse = asdict(base) | {"recipe": "unsup", "fields": dict(system.simcse)}
    contenders = [
        Contender("SimCSE", "benchmarks.training:ours", simcse),
        Contender(name, "benchmarks.training:ours", own),
    ]
    title = f"{name}, {args.dtype}, batch {base.batch_size}"
    comparison = side_by_side.compare(title, "examples", contenders, args.rounds, order=args.order)
    print(f"\n{side_by_side.table(comparison)}", flush=True)
    found: dict[str, Any] = {"system": name, "setting": own, **comparison.to_json()}
    if ratios := comparison.ratios("SimCSE", name):
        found["cost"] = cost = side_by_side.spread(ratios)
        bound = f", at most {system.bound}" if system.bound and args.base and args.dtype == "float32" else ""
        print(f"  a step costs {cost['median']:.2f} ({cost['min']:.2f} to {cost['max']:.2f}) of SimCSE's{bound}")
    return found


if __name__ == "__main__":
    run_command(main)
