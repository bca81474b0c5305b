"""python -m simcse_jax.geometry --models A B --runs W --data SENTEVAL_FOLDER --output DIR

Alignment, uniformity, singular values and cosine densities on STS-B: of models beside each other (`--models`; SimCSE,
Figures 3, F.1 and G.1), and of the checkpoints of training runs (`--runs`; Figure 2). Writes numbers and pictures.
"""

import contextlib
import functools
import json
import os
import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simcse_jax.errors import Parser, UserError, run_command
from simcse_jax.models.config import POOLERS
from simcse_jax.storage import local_path

if TYPE_CHECKING:
    from simcse_jax.evaluation.geometry import Geometry
    from simcse_jax.evaluation.sts import Encode
    from simcse_jax.models.parameters import Params
    from simcse_jax.storage import Folder

FILE = "geometry.json"


class Model(NamedTuple):
    """What `--models` names: NAME, NAME@LAYERS, NAME@POOLER or NAME@LAYERS@POOLER."""

    name: str
    num_layers: int = 0  # 0: all
    pooler: str | None = None  # None: the model's own

    @property
    def details(self) -> str:
        """What it says beside the name, for a picture."""
        layers = [f"{self.num_layers} layer{'s' * (self.num_layers > 1)}"] if self.num_layers else []
        return "".join(f", {part}" for part in [*layers, *([self.pooler] if self.pooler else [])])


def main() -> None:
    """Reads the data and finds all models and checkpoints first, so that a mistake is told before hours of encoding."""
    args, models = read_arguments()
    from simcse_jax.evaluation import geometry
    from simcse_jax.loading import choose_pooler, load_model
    from simcse_jax.simcse import SimCSE
    from simcse_jax.storage import as_path

    pairs = geometry.read(args.data, args.split)
    for model in models.values():  # seconds each, against the minutes that are lost with a mistake in the last one
        choose_pooler(load_model(model.name, model.num_layers), model.pooler)
    runs = {name: as_path(name) for name in args.runs}
    for folder in runs.values():
        steps_of(folder)
    output = make_folder(args.output)

    data = Path(args.data).name if local_path(args.data).is_file() else f"STS-B {args.split}"
    positives = int((pairs.gold > geometry.POSITIVE).sum())
    print(f"{args.data}: {data}, {len(pairs.gold)} pairs, of which {positives} are rated above 4", flush=True)
    about = {"data": data, "pairs": len(pairs.gold), "positives": positives}

    names = short_names([model.name for model in models.values()])
    labels = unique([name + model.details for name, model in zip(names, models.values(), strict=True)], list(models))
    by_model, model_facts = {}, {}
    for (spec, model), label in zip(models.items(), labels, strict=True):
        encoder = SimCSE(model.name, pooler=model.pooler, num_layers=model.num_layers, batch_size=args.batch_size)
        by_model[label] = geometry.measure(encoder.encode, pairs)
        model_facts[label] = {"model": spec, "pooler": encoder.pooler, **by_model[label].to_json()}
        say(label, by_model[label])
    by_run, run_facts = {}, {}
    for (name, folder), label in zip(runs.items(), unique(short_names(list(runs)), list(runs)), strict=True):
        by_run[label] = []
        for step, encode in checkpoint_encoders(folder, args.batch_size):
            by_run[label].append((step, geometry.measure(encode, pairs)))
            say(f"{label}, step {step}", by_run[label][-1][1])
        checkpoints = [{"step": step, **found.numbers()} for step, found in by_run[label]]
        run_facts[label] = {"workdir": name, "checkpoints": checkpoints}
    grid = [round(float(cosine), 4) for cosine in geometry.GRID]
    write(output, {**about, "density_at": grid, "models": model_facts, "runs": run_facts}, by_model, by_run)


def read_arguments() -> tuple[Namespace, dict[str, Model]]:
    """The command line, and the models by what they are called there.

    Raises:
      UserError: naming the option that is wrong.
    """
    parser = Parser(prog="simcse_jax.geometry", description="Alignment, uniformity and more, of models and of runs.")
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
        "--split", choices=("dev", "test", "all"), default="test", help="of STS-B; all: train, dev and test together"
    )
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--output", required=True, help="the folder for geometry.json and the pictures")
    args = parser.parse_args()
    if not args.models and not args.runs:
        raise UserError("name something to measure: --models, --runs or both")
    models = dict(zip(args.models, map(parse_model, args.models), strict=True))
    for option, names in (("--models", args.models), ("--runs", args.runs)):
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated:
            raise UserError(f"{option}: {repeated} is there twice")
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    output = local_path(args.output)
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {args.output}: is a file; it must be a folder, which is made if need be")
    return args, models


def write(
    output: Path,
    result: dict[str, Any],
    by_model: "dict[str, Geometry]",
    by_run: "dict[str, list[tuple[int, Geometry]]]",
) -> None:
    """Writes the numbers and the pictures, each file whole or not at all, and says so."""
    from simcse_jax.evaluation import pictures
    from simcse_jax.storage import write_atomically

    drawn: dict[str, dict[str, bytes]] = {}
    if by_model:
        for draw in (pictures.models, pictures.singular_values, pictures.cosines):
            drawn[draw.__name__] = draw(by_model, result["data"])
    if by_run:
        drawn["runs"] = pictures.runs(by_run, result["data"])
    write_atomically(output / FILE, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    for name, kinds in drawn.items():
        for kind, content in kinds.items():
            write_atomically(output / f"{name}.{kind}", content)
    print(f"{output}: {', '.join([FILE, *(f'{name}.png and .svg' for name in drawn)])}")


def say(label: str, found: "Geometry") -> None:
    """One line a measured model, as soon as it is measured."""
    numbers = f"alignment {found.alignment:.4f}, uniformity {found.uniformity:.4f}"
    print(f"{label}: {numbers}, Spearman × 100 {found.spearman:.2f}", flush=True)


def parse_model(spec: str) -> Model:
    """One argument of `--models`: NAME, NAME@LAYERS, NAME@POOLER or both; NAME may be OWNER/NAME@REVISION."""
    parts = [spec] if local_path(spec).exists() else spec.split("@")
    num_layers, pooler = 0, None
    while len(parts) > 1:  # from the end: before the options may stand a revision of a hub's model
        if re.fullmatch("[1-9][0-9]*", parts[-1]) and not num_layers:
            num_layers = int(parts.pop())
        elif parts[-1] in POOLERS and pooler is None:
            pooler = parts.pop()
        else:
            break
    return Model("@".join(parts), num_layers, pooler)


def short_names(names: Sequence[str]) -> list[str]:
    """Names for a picture: the last part of a path, with as many parts before it as tell different names apart."""
    cleaned = [name.removeprefix("package:").rstrip("/") for name in names]
    parts = [[part for part in name.split("/") if part] or [name] for name in cleaned]

    def short(number: int) -> str:
        others = [other for place, other in enumerate(parts) if cleaned[place] != cleaned[number]]
        count = 1
        while any(other[-count:] == parts[number][-count:] for other in others) and count < len(parts[number]):
            count += 1
        return "/".join(parts[number][-count:])

    return [short(number) for number in range(len(names))]


def unique(labels: list[str], names: list[str]) -> list[str]:
    """The labels, or the full names where two labels are the same."""
    return labels if len(set(labels)) == len(labels) else names


def make_folder(name: str) -> Path:
    """The folder of that name, made if need be.

    Raises:
      UserError: when nothing can be written to it.
    """
    folder = local_path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output {name}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--output {name}: cannot be written to")
    return folder


def steps_of(folder: "Folder") -> list[int]:
    """The steps whose checkpoints a run has kept.

    Raises:
      UserError: when it is no run's folder, or there are fewer than two.
    """
    from simcse_jax.workdir import is_workdir

    if not is_workdir(folder):
        raise UserError(f"--runs {folder}: no run.json there, so it is no run's folder")
    saved = folder / "checkpoints"
    steps = sorted(int(path.name) for path in saved.iterdir() if path.name.isdigit()) if saved.is_dir() else []
    if len(steps) < 2:
        what = "one checkpoint was" if steps else "no checkpoints were"
        raise UserError(f"--runs {folder}: {what} kept; train it with --config.checkpoint.keep_every=10, say")
    return steps


def checkpoint_encoders(folder: "Folder", batch_size: int = 64) -> Iterator[tuple[int, "Encode"]]:
    """The run's model as it started (step 0), where that can still be loaded, and as it was at every kept checkpoint.

    All go through the same compiled encoder, with the run's pooler and, if it belongs to the model, its head.

    Yields:
      The step, and encode(sentences) -> (N, D).

    Raises:
      UserError: when a checkpoint cannot be read.
    """
    from simcse_jax.checkpoint import Checkpoints
    from simcse_jax.encoding import make_encode
    from simcse_jax.loading import choose_pooler, load_workdir
    from simcse_jax.models import huggingface
    from simcse_jax.models.tokenizer import Tokenizer
    from simcse_jax.models.trained import trained_shapes
    from simcse_jax.models.weight_files import read_json

    model, run = load_workdir(folder), read_json(folder / "run.json")
    pooler, use_head = choose_pooler(model, None)
    graph, _ = huggingface.build(model.config, with_head="head.kernel" in model.params)
    tokenizer = Tokenizer(model.folder, model.config)
    encode = make_encode(
        graph, tokenizer, pooler=pooler, use_head=use_head, max_length=model.max_length, batch_size=batch_size
    )

    def with_params(params: "Params") -> "Encode":
        return functools.partial(encode, {name: params[name] for name in model.params})

    start = starting_params(folder, run)
    if start is not None:
        yield 0, with_params(start)
    shapes = trained_shapes(model.config, run["config"])
    with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
        for step in steps_of(folder):
            yield step, with_params(checkpoints.restore_params(step, shapes))


def starting_params(folder: "Folder", run: dict[str, Any]) -> "Params | None":
    """What the run started from, with the same fresh head; None, saying so, when those weights are not there now."""
    from ml_collections import config_dict

    from simcse_jax.data.batches import sha256
    from simcse_jax.loading import load_model
    from simcse_jax.recipe import initial_params

    # Of what a run trains, the first encoder and its head alone make embeddings.
    model_fields = {**run["config"]["model"], "dual_encoder": False}
    objective = {"mlm": {"weight": 0.0}, "softmax_nli": {"weight": 0.0}}
    config = config_dict.ConfigDict({"seed": run["config"]["seed"], "model": model_fields, "objective": objective})
    name = config.model.init_from
    try:
        model = load_model(name, config.model.num_layers)
    except UserError as error:
        print(f"{folder}: step 0 is left out: {error}", flush=True)
        return None
    if sha256(*(model.params[part] for part in sorted(model.params))) != run["sha256"]["model.init_from"]:
        print(f"{folder}: step 0 is left out: {name} is not what the run started from", flush=True)
        return None
    return initial_params(config, model)


if __name__ == "__main__":
    run_command(main)
