"""python -m simcse_jax.geometry --models A B --runs W --data SENTEVAL_FOLDER --output DIR

Alignment, uniformity, singular values and cosine densities on STS-B, for models in comparison (`--models`; SimCSE,
Figures 3, F.1 and G.1) and for the checkpoints of training runs (`--runs`; Figure 2). Writes numbers and pictures.
"""

import functools
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.command_line import Model, Parser, add_prompts, parse_model, run_command
from simcse_jax.errors import UserError, require
from simcse_jax.outputs import output_folder, printing
from simcse_jax.plotting import short_names, unique
from simcse_jax.progress import doing
from simcse_jax.storage import Folder, as_path, local_path

if TYPE_CHECKING:
    from simcse_jax.evaluation.geometry import Geometry
    from simcse_jax.evaluation.sts import Pairs

FILE = "geometry.json"
FILES = (FILE, "*.png", "*.svg")  # what it writes


def main() -> None:
    """Reads the data and finds all models and checkpoints first, so that a mistake is reported immediately."""
    args, models = read_arguments()
    require("train", "matplotlib")
    inputs = {"--data": args.data} | {f"--models {spec}": model.name for spec, model in models.items()}
    output = output_folder(args.output, inputs | {f"--runs {name}": name for name in args.runs}, files=FILES)
    from simcse_jax.evaluation import geometry
    from simcse_jax.huggingface.load import choose_pooler
    from simcse_jax.runs.kept import steps_of
    from simcse_jax.runs.loading import load_model

    pairs = geometry.read(args.data, args.split)
    for model in models.values():  # seconds each; a mistake in the last one would cost minutes
        choose_pooler(load_model(model.name, model.num_layers), model.pooler)
    runs = {name: as_path(name) for name in args.runs}
    for folder in runs.values():
        steps_of(folder)

    data = Path(args.data).name if local_path(args.data).is_file() else f"STS-B {args.split}"
    positives = int((pairs.gold > geometry.POSITIVE).sum())
    about = {"data": data, "pairs": len(pairs.gold), "positives": positives}
    grid = [round(float(cosine), 4) for cosine in geometry.GRID]
    with printing(True) as say:
        say(f"{args.data}: {data}, {len(pairs.gold)} pairs, {positives} of them rated above 4")
        with doing():
            by_model, model_facts = measure_models(models, pairs, args, say)
            by_run, run_facts = measure_runs(runs, pairs, args.batch_size, say)
        facts = {**about, "density_at": grid, "models": model_facts, "runs": run_facts}
        names = write(output, facts, by_model, by_run)
        say(f"{output}: {', '.join(names)}")


def read_arguments() -> tuple[Namespace, dict[str, Model]]:
    """The options, and the models by their names on the command line.

    Raises:
      UserError: naming the option that is wrong.
    """
    parser = Parser(
        prog="simcse_jax.geometry",
        description="Measures alignment, uniformity, singular values and cosines of models and of runs' checkpoints. "
        "Needs graded pairs, and models or runs with kept checkpoints. Writes geometry.json and pictures to --output.",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        default=[],
        metavar="NAME[@LAYERS][@POOLER]",
        help="folders, hub ids, package:NAME or workdirs; NAME@3 keeps the first 3 layers, NAME@avg takes that pooler",
    )
    parser.add_argument(
        "--runs", nargs="+", default=[], metavar="WORKDIR", help="runs trained with checkpoint.keep_every=n"
    )
    parser.add_argument("--data", required=True, help="SentEval's data/downstream, or a file of pairs graded 0 to 5")
    parser.add_argument(
        "--split",
        choices=("dev", "test", "all"),
        default="test",
        help="the split of STS-B; all is train, dev and test together",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    add_prompts(parser)
    parser.add_argument("--output", required=True, help="the folder for geometry.json and the pictures")
    args = parser.parse_args()
    if not args.models and not args.runs:
        raise UserError("nothing to measure; give --models, --runs or both")
    models = dict(zip(args.models, map(parse_model, args.models), strict=True))
    for option, names in (("--models", args.models), ("--runs", args.runs)):
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated:
            raise UserError(f"{option}: {repeated} is given twice")
    for option in ("prompt", "prompt_name", "truncate_dim"):
        if getattr(args, option) is not None and not args.models:
            raise UserError(f"--{option.replace('_', '-')}: is for --models, which is not given")
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    return args, models


def measure_models(
    models: dict[str, Model], pairs: "Pairs", args: Namespace, say: Callable[[str], None]
) -> "tuple[dict[str, Geometry], dict[str, Any]]":
    """Measures each model and says so: the measures and the facts to write, by their labels on the pictures."""
    from simcse_jax.evaluation import geometry
    from simcse_jax.simcse import SimCSE

    names = short_names([model.name for model in models.values()])
    labels = unique([name + model.details for name, model in zip(names, models.values(), strict=True)], list(models))
    found, facts = {}, {}
    for (spec, model), label in zip(models.items(), labels, strict=True):
        encoder = SimCSE(
            model.name,
            pooler=model.pooler,
            num_layers=model.num_layers,
            batch_size=args.batch_size,
            truncate_dim=args.truncate_dim,
        )
        prompt = {"prompt": args.prompt, "prompt_name": args.prompt_name}
        encode = functools.partial(encoder.encode, show_progress_bar=True, **prompt)
        with doing(label):
            found[label] = geometry.measure(encode, pairs)
        facts[label] = {"model": spec, "pooler": encoder.pooler, **found[label].to_json()}
        say(line(label, found[label]))
    return found, facts


def measure_runs(
    runs: dict[str, Folder], pairs: "Pairs", batch_size: int, say: Callable[[str], None]
) -> "tuple[dict[str, list[tuple[int, Geometry]]], dict[str, Any]]":
    """Measures each kept checkpoint of each run: steps and measures, and the facts to write, by the runs' labels."""
    from simcse_jax.evaluation import geometry
    from simcse_jax.runs.kept import checkpoint_encoders

    found: dict[str, list[tuple[int, Geometry]]] = {}
    facts = {}
    for (name, folder), label in zip(runs.items(), unique(short_names(list(runs)), list(runs)), strict=True):
        found[label] = []
        for kept in checkpoint_encoders(folder, batch_size):
            with doing(f"{label}, step {kept.step}"):
                found[label].append((kept.step, geometry.measure(kept.embed.with_progress, pairs)))
            say(line(f"{label}, step {kept.step}", found[label][-1][1]))
        checkpoints = [{"step": step, **measured.numbers()} for step, measured in found[label]]
        facts[label] = {"workdir": name, "checkpoints": checkpoints}
    return found, facts


def write(
    output: Path,
    result: dict[str, Any],
    by_model: "dict[str, Geometry]",
    by_run: "dict[str, list[tuple[int, Geometry]]]",
) -> list[str]:
    """Writes the numbers and the pictures, all or none; returns their names."""
    from simcse_jax.evaluation import geometry_pictures as pictures
    from simcse_jax.storage import write_together

    drawn: dict[str, dict[str, bytes]] = {}
    if by_model:
        for draw in (pictures.models, pictures.singular_values, pictures.cosines):
            drawn[draw.__name__] = draw(by_model, result["data"])
    if by_run:
        drawn["runs"] = pictures.runs(by_run, result["data"])
    files: dict[str, str | bytes] = {FILE: json.dumps(result, indent=2, ensure_ascii=False) + "\n"}
    files |= {f"{name}.{kind}": content for name, kinds in drawn.items() for kind, content in kinds.items()}
    write_together(output, files)
    return [FILE, *(f"{name}.png and .svg" for name in drawn)]


def line(label: str, found: "Geometry") -> str:
    """What is printed of a model."""
    numbers = f"alignment {found.alignment:.4f}, uniformity {found.uniformity:.4f}"
    return f"{label}: {numbers}, Spearman × 100 {found.spearman:.2f}"


if __name__ == "__main__":
    run_command(main)
