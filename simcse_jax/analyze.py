"""python -m simcse_jax.analyze --model M [--compare BASE] --data FILE --output DIR, or --runs A B [--data FILE] …

The effect of contrastive learning on the space: isotropy, self- and intra-sentence similarity of every layer, and the
contributions of single dimensions, measured as in the isotropy paper; of one model, or also of the one it started from.
`--runs` draws how the last layer changed while runs trained. Writes numbers, pictures and a page with both.
"""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.analysis.protocol import CHOICES, Protocol, option
from simcse_jax.command_line import Parser, parse_model, run_command
from simcse_jax.errors import UserError, require
from simcse_jax.outputs import output_folder, printing
from simcse_jax.storage import Folder, as_path

if TYPE_CHECKING:
    from simcse_jax.analysis.data import Data
    from simcse_jax.analysis.map import Map
    from simcse_jax.analysis.tokens import Survey
    from simcse_jax.runs.measured import Point
    from simcse_jax.simcse import SimCSE

FILES = ("*.json", "report.html", "*.png", "*.svg")  # what it writes
NUMBERS = {  # of the protocol, and their meanings
    "min_count": "token types that occur less often have no self-similarity",
    "max_types": "the most types, by frequency, that have one; memory grows with them",
    "samples": "tokens of the anisotropy baseline, each from a different sentence",
    "seed": "the seed of that sample",
}


def main() -> None:
    """Measures models, or draws runs over their steps."""
    args, protocol = read_arguments()
    require("train", "matplotlib")
    second = args.second_pair or ()
    named = {"--model": args.model, "--compare": args.compare} | {f"--second-pair {name}": name for name in second}
    inputs = {"--data": args.data} | {option_: parse_model(name).name for option_, name in named.items() if name}
    output = output_folder(args.output, inputs | {f"--runs {name}": name for name in args.runs}, files=FILES)
    if args.runs:
        analyze_runs(args, protocol, output)
    else:
        analyze_models(args, protocol, output)


def read_arguments() -> tuple[Namespace, Protocol]:
    """The command line.

    Raises:
      UserError: naming the option that is wrong.
    """
    parser = Parser(
        prog="simcse_jax.analyze",
        description="Isotropy and contextualization of a model's layers, or how the last one changed in training. "
        "Needs a model and sentences, or the folders of runs. Writes numbers, pictures and a page to --output.",
    )
    model = "NAME[@LAYERS]"
    parser.add_argument("--model", metavar=model, help="a folder, hub id, package:NAME or workdir; NAME@3: 3 layers")
    parser.add_argument(
        "--runs",
        nargs="+",
        default=[],
        metavar="WORKDIR",
        help="in place of --model: kept checkpoints, measured on --data; without --data the records of analysis.every",
    )
    parser.add_argument("--compare", metavar=model, help="the model it was trained from, or any with the same tokens")
    parser.add_argument(
        "--second-pair",
        nargs=2,
        metavar=("MODEL", "BASE"),
        help="another model and the one it was trained from: do the same tokens change in both (eq. 11)?",
    )
    parser.add_argument(
        "--data",
        help="the sentences to measure on: a .txt, .csv, .tsv, .jsonl or .parquet file, or SentEval's data/downstream",
    )
    parser.add_argument(
        "--column", help="the sentences' column (default: sentence, text, sent0, anchor, or the only one)"
    )
    parser.add_argument("--output", required=True, help="the folder for metrics.json, report.html and the pictures")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    choices = parser.add_argument_group("protocol", "what the paper leaves open; the defaults come closest to it")
    for name, values in CHOICES.items():
        text = "; ".join(f"{value}: {meaning}" for value, meaning in values.items())
        choices.add_argument(option(name), choices=values, default=getattr(Protocol, name), help=text)
    for name, text in NUMBERS.items():
        default = getattr(Protocol, name)
        choices.add_argument(option(name), type=int, default=default, metavar="N", help=text)
    args = parser.parse_args()
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    protocol = Protocol(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Protocol)})
    if args.runs:
        check_runs(args, protocol)
    else:
        check_models(args)
    return args, protocol


def check_models(args: Namespace) -> None:
    """Checks that there are models to measure, and that they differ.

    Raises:
      UserError: naming the option.
    """
    if not args.model:
        raise UserError("nothing to measure; give --model, or --runs")
    if not args.data:
        raise UserError("--data: is missing; give a file of sentences")
    if args.second_pair and not args.compare:
        raise UserError("--second-pair: is compared with --model and --compare; give --compare too")
    if args.compare == args.model:
        raise UserError(f"--compare {args.compare}: is the model itself")
    if args.second_pair and args.second_pair[0] == args.second_pair[1]:
        raise UserError(f"--second-pair {' '.join(args.second_pair)}: is a model and itself")


def check_runs(args: Namespace, protocol: Protocol) -> None:
    """Refuses options that have no use with `--runs`.

    Raises:
      UserError: naming the option.
    """
    for option_, value in (("--model", args.model), ("--compare", args.compare), ("--second-pair", args.second_pair)):
        if value:
            raise UserError(f"{option_}: has no use with --runs; leave one of them out")
    if repeated := next((name for name in args.runs if args.runs.count(name) > 1), None):
        raise UserError(f"--runs: {repeated} is given twice")
    fields = dataclasses.fields(Protocol)
    given = [option(field.name) for field in fields if getattr(protocol, field.name) != field.default]
    given += ["--column"] if args.column else []
    if given and not args.data:
        raise UserError(f"{given[0]}: has no use without --data, which is what it measures")


def analyze_models(args: Namespace, protocol: Protocol, output: Path) -> None:
    """Measures up to four models, and writes the report to the folder `output`.

    Reads the data and all models first, so that a mistake is reported before hours of encoding.

    Raises:
      UserError: when the data or a model is wrong, or models cannot be compared.
    """
    from simcse_jax.analysis import report, terminal, tokens
    from simcse_jax.analysis.data import read_data
    from simcse_jax.analysis.measure import measure
    from simcse_jax.analysis.metrics import collect
    from simcse_jax.runs.workdir import versions

    sentences, data, _ = read_data(args.data, args.column)
    pairs = [[args.model, args.compare] if args.compare else [args.model]]
    pairs += [args.second_pair] if args.second_pair else []
    models = {name: load(name, args.batch_size) for pair in pairs for name in pair}
    max_length = min(model.max_length for model, _ in models.values())
    encoders = {name: model.token_encoder(max_length) for name, (model, _) in models.items()}
    surveys = {name: tokens.survey(encoder, sentences, protocol, args.data) for name, encoder in encoders.items()}
    for pair in pairs:
        tokens.check_same_tokens({name: surveys[name] for name in pair})
    if args.second_pair:
        tokens.check_in_common(surveys[args.model], surveys[args.second_pair[0]])
    found = {}
    with printing(True) as say:
        say(terminal.data_lines(data, surveys[args.model], max_length))
        for name, encoder in encoders.items():
            found[name] = measure(encoder, surveys[name], show_progress_bar=True)
            say(f"\n{name}\n{terminal.table(found[name])}")
        metrics = collect(pairs, surveys, found, data=data, max_length=max_length)
        say("\n" + report.in_a_sentence(metrics))
        if lines := terminal.change_lines(metrics):
            say(lines)
        drawn = make_map(report.models_of(metrics), [models[name] for name in pairs[0]], surveys[args.model], say)
        names = report.write(metrics, output, versions=versions(), embedding_map=drawn)
        say("\n" + terminal.files_line(output, report.METRICS, names))


def analyze_runs(args: Namespace, protocol: Protocol, output: Path) -> None:
    """Draws how the last layer of runs changed: on the data or, without data, as it was measured in training.

    Raises:
      UserError: naming the run that has nothing to measure or was measured on other sentences.
    """
    from simcse_jax.analysis import dynamics, summary, terminal
    from simcse_jax.analysis.data import read_data
    from simcse_jax.runs.measured import read_run, recorded
    from simcse_jax.runs.workdir import versions

    data = read_data(args.data, args.column) if args.data else None
    folders = {name: as_path(name) for name in args.runs}
    runs = {name: read_run(folder) for name, folder in folders.items()}
    labels = dict(zip(runs, dynamics.labels({name: run["config"] for name, run in runs.items()}), strict=True))
    with printing(True) as say:
        if data:
            points, about = measure_runs(args, protocol, data, folders, labels, say)
            where = data.name
        else:
            points, about, where = recorded(folders, runs)
        named = {labels[name]: found for name, found in points.items()}
        workdirs = {label: name for name, label in labels.items()}
        names = dynamics.write(named, output, data=where, about=about, workdirs=workdirs, versions=versions())
        say(summary.of_runs(named))
        say(terminal.files_line(output, dynamics.DYNAMICS, names))


def measure_runs(
    args: Namespace,
    protocol: Protocol,
    data: "Data",
    folders: dict[str, Folder],
    labels: dict[str, str],
    say: Callable[[str], None],
) -> "tuple[dict[str, list[Point]], dict[str, Any]]":
    """Measures every kept checkpoint of every run, and prints a line each with `say`.

    Returns:
      The points by the runs' names, and how they were measured.

    Raises:
      UserError: when a run kept no checkpoints, or the runs' tokenizers differ.
    """
    from simcse_jax.analysis import dynamics, last_layer
    from simcse_jax.runs.measured import measure_checkpoints, survey_checkpoints

    survey, max_length = survey_checkpoints(folders, data.sentences, protocol, args.data, args.batch_size)
    positives = last_layer.positives(data.pairs, len(data.sentences)) if data.pairs else []
    sample = last_layer.Sample(survey.sentences, positives)
    say(f"{data.name}: {len(survey.sentences):,} sentences, {survey.units.sum():,} tokens")
    points: dict[str, list[Point]] = {}
    for name, folder in folders.items():
        points[name] = []
        for point in measure_checkpoints(folder, survey, sample, max_length, args.batch_size):
            points[name].append(point)
            numbers = ", ".join(f"{field} {value:.4f}" for field, value in point.items() if field in dynamics.FIELDS)
            say(f"{labels[name]}, step {point['step']}: {numbers}".replace("_", " "))
    about = {"source": "kept checkpoints", "sentences": len(survey.sentences), "tokens": int(survey.units.sum())}
    about |= {"pairs_of_alignment": len(positives)}
    return points, about | dataclasses.asdict(protocol) | {"max_length": max_length}


def load(name: str, batch_size: int) -> tuple["SimCSE", str | None]:
    """A model, and its pooler; None where its own is not known here, which the map of the sentences alone needs."""
    from simcse_jax.simcse import SimCSE

    spec = parse_model(name)
    # Any pooler will do: a model whose own is unknown is measured too.
    model = SimCSE(spec.name, pooler=spec.pooler or "avg", num_layers=spec.num_layers, batch_size=batch_size)
    return model, spec.pooler or model.own_pooler


def make_map(
    names: Iterable[str],
    models: "list[tuple[SimCSE, str | None]]",
    survey: "Survey",
    say: Callable[[str], None],
) -> "Map | None":
    """A map of the anisotropy baseline's sentences; None, after saying why, if they have no embeddings.

    Args:
      names: the models' names on the map.
      models: the model, and the one it is compared with, as `load` gives them.
      survey: of the data.
      say: prints.
    """
    from simcse_jax.analysis.map import project

    for model, pooler in models:
        if pooler is None:
            say(f"no map of the sentences: how {model.name} pools is not known here; name a pooler, {model.name}@avg")
            return None
    some = [survey.sentences[row] for row in survey.sample]
    embeddings = [model.encode_counted(some, pooler=pooler).embeddings for model, pooler in models]
    if len({each.shape for each in embeddings}) > 1:
        say("no map of the sentences: the embeddings of the two models differ in size")
        return None
    found = list(zip(names, embeddings, strict=True))
    return project(dict(reversed(found)))  # before and after, from left to right


if __name__ == "__main__":
    run_command(main)
