"""simcse-jax analyze --pair M BASE --data FILE --output DIR, or --models M …, or --runs A B [--data FILE]

The effect of contrastive learning on the space: isotropy, self- and intra-sentence similarity of every layer, and the
contributions of single dimensions, measured as in the isotropy paper; of any number of models, next to those that they
were trained from. `--runs` draws how the last layer changed while runs trained; `--rank` measures the rank of the
correlation of dimensions (SimCSE++, section 4.2). Writes numbers, pictures and a page with both.
"""

import dataclasses
import itertools
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import MODEL, Parser, add_batch_size, parse_model
from simcse_jax.errors import UserError, require
from simcse_jax.evaluation.analysis.inputs import Models, choose
from simcse_jax.evaluation.analysis.tokens import CHOICES, Protocol, option
from simcse_jax.host.outputs import output_folder, printing
from simcse_jax.host.storage import Folder, as_path, local_path

if TYPE_CHECKING:
    from simcse_jax.evaluation.analysis.inputs import Data
    from simcse_jax.runs.dynamics import Point
    from simcse_jax.simcse import SimCSE

FILES = ("*.json", "report.html", "*.png", "*.svg")  # what it writes
SPLITS = ("dev", "test")
BATCH, ARTIFICIAL = 64, (0, 100, 300, 704)  # of SimCSE++, Table 2
BATCHES = 10  # random ones, of each size
MOST_ROWS = 10_000  # far more than a model has dimensions
NUMBERS = {  # of the protocol, and their meanings
    "min_count": "token types that occur less often have no self-similarity",
    "max_types": "the most types, by frequency, that have one; memory grows with them",
    "samples": "tokens of the anisotropy baseline, each from a different sentence",
    "seed": "the seed of that sample",
}


def main() -> None:
    """Measures models, or draws runs over their steps."""
    args, protocol, models = read_arguments()
    require("train", "matplotlib")
    inputs = {"--data": args.data} | {f"--models {name}": parse_model(name).name for name in models.names.values()}
    output = output_folder(args.output, inputs | {f"--runs {name}": name for name in args.runs}, files=FILES)
    if args.runs:
        analyze_runs(args, protocol, output)
    elif args.rank is not None:
        analyze_rank(args, models, output)
    else:
        analyze_models(args, protocol, models, output)


def read_arguments() -> tuple[Namespace, Protocol, Models]:
    """The command line.

    Raises:
      UserError: naming the option that is wrong.
    """
    parser = Parser(
        "analyze",
        description="Isotropy and contextualization of models' layers, or how the last one changed in training. "
        "Needs models and sentences, or the folders of runs. Writes numbers, pictures and a page to --output.",
    )
    name = "NAME[@LAYERS][@POOLER][=LABEL]"
    parser.add_argument(
        *("--models", "--model"),
        nargs="+",
        default=[],
        metavar=name,
        help=f"{MODEL}, each; NAME@3: 3 layers, NAME@cls: that pooler; LABEL: its name in the report",
    )
    parser.add_argument(
        *("--pair", "--second-pair"),
        nargs=2,
        default=[],
        action="append",
        metavar=("MODEL", "BASE"),
        help="a model, as for --models or by its label there, and the one it was trained from (or any with the same "
        "tokens): which tokens changed, and with several pairs, are they the same ones (eq. 10, 11)? May be repeated",
    )
    parser.add_argument("--compare", metavar="BASE", help="with one model: the same as --pair MODEL BASE")
    parser.add_argument(
        "--runs",
        nargs="+",
        default=[],
        metavar="WORKDIR",
        help="in place of models: kept checkpoints, measured on --data; without --data the records of analysis.every",
    )
    parser.add_argument(
        "--data",
        help="the sentences to measure on: a .txt, .csv, .tsv, .jsonl or .parquet file, or SentEval's data/downstream",
    )
    parser.add_argument(
        "--column", help="the sentences' column (default: sentence, text, sent0, anchor, or the only one)"
    )
    parser.add_argument("--split", choices=SPLITS, default="test", help="of STS-B, where --data is SentEval's folder")
    parser.add_argument(
        "--sentences", type=int, metavar="N", help="how many, spread evenly over the data (default: all)"
    )
    parser.add_argument(
        "--rank",
        nargs="*",
        type=int,
        metavar="N",
        help="in place of the report: the rank of the correlation of the models' dimensions in batches of N sentences "
        f"(default: {BATCH}), with --artificial rows",
    )
    parser.add_argument(
        "--artificial",
        nargs="+",
        type=int,
        metavar="M",
        help=f"rows of N(0, 1) that --rank adds to a batch (default: {' '.join(map(str, ARTIFICIAL))})",
    )
    parser.add_argument("--output", required=True, help="the folder for metrics.json, report.html and the pictures")
    add_batch_size(parser)
    choices = parser.add_argument_group("protocol", "what the paper leaves open; the defaults come closest to it")
    for name, values in CHOICES.items():
        text = "; ".join(f"{value}: {meaning}" for value, meaning in values.items())
        choices.add_argument(option(name), choices=values, default=getattr(Protocol, name), help=text)
    for name, text in NUMBERS.items():
        default = getattr(Protocol, name)
        choices.add_argument(option(name), type=int, default=default, metavar="N", help=text)
    args = parser.parse_args()
    for number in ("batch_size", "sentences"):
        if (value := getattr(args, number)) is not None and value < 1:
            raise UserError(f"{option(number)} {value}: must be 1 or more")
    if args.split != "test" and not (args.data and local_path(args.data).is_dir()):
        raise UserError(f"--split {args.split}: is for SentEval's folder as --data")
    protocol = Protocol(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Protocol)})
    if args.runs:
        check_runs(args, protocol)
        return args, protocol, Models({}, [])
    if args.rank is not None:
        check_rank(args, protocol)
    elif args.artificial is not None:
        raise UserError("--artificial: has no use without --rank")
    return args, protocol, read_models(args)


def read_models(args: Namespace) -> Models:
    """The models of a report.

    Raises:
      UserError: when there is nothing to measure, or a model is compared with itself.
    """
    if not args.models and not args.pair:
        raise UserError("nothing to measure; give --models, --pair or --runs")
    if not args.data:
        raise UserError("--data: is missing; give a file of sentences")
    if args.compare is not None and len(args.models) != 1:
        raise UserError(f"--compare {args.compare}: goes with one model; give --pair MODEL BASE for each")
    models = choose(args.models, args.pair if args.compare is None else [[args.models[0], args.compare], *args.pair])
    for pair in models.pairs:
        model, base = (parse_model(models.names[label]) for label in pair)
        if (model.name, model.num_layers) == (base.name, base.num_layers):
            raise UserError(f"--pair {' '.join(pair)}: differ in the pooler alone; what is compared are their tokens")
    return models


def check_rank(args: Namespace, protocol: Protocol) -> None:
    """Fills in the sizes of `--rank`, and refuses options that have no use with it.

    Raises:
      UserError: naming the option.
    """
    args.rank, args.artificial = sorted({*(args.rank or [BATCH])}), sorted({*(args.artificial or ARTIFICIAL)})
    for name, least in (("rank", 2), ("artificial", 0)):
        for value in getattr(args, name):
            if not least <= value <= MOST_ROWS:
                raise UserError(f"{option(name)} {value}: must be from {least} to {MOST_ROWS:,}")
    if given := [name for name in changed(protocol) if name != "--seed"]:
        raise UserError(f"{given[0]}: has no use with --rank, which measures sentence embeddings")


def check_runs(args: Namespace, protocol: Protocol) -> None:
    """Refuses options that have no use with `--runs`.

    Raises:
      UserError: naming the option.
    """
    for name, empty in (("models", []), ("compare", None), ("pair", []), ("rank", None), ("artificial", None)):
        if getattr(args, name) != empty:
            raise UserError(f"{option(name)}: has no use with --runs; leave one of them out")
    if repeated := next((name for name in args.runs if args.runs.count(name) > 1), None):
        raise UserError(f"--runs: {repeated} is given twice")
    given = changed(protocol) + [option(name) for name in ("column", "sentences") if getattr(args, name)]
    if given and not args.data:
        raise UserError(f"{given[0]}: has no use without --data, which is what it measures")


def changed(protocol: Protocol) -> list[str]:
    """The options of the protocol that are not at their defaults."""
    fields = dataclasses.fields(Protocol)
    return [option(field.name) for field in fields if getattr(protocol, field.name) != field.default]


def analyze_models(args: Namespace, protocol: Protocol, models: Models, output: Path) -> None:
    """Measures models, and writes the report to the folder `output`.

    Reads the data and all models first, so that a mistake is reported before hours of encoding.

    Raises:
      UserError: when the data or a model is wrong, or models cannot be compared.
    """
    from simcse_jax.evaluation.analysis import report, sentences, tokens
    from simcse_jax.evaluation.analysis.inputs import read_data
    from simcse_jax.evaluation.analysis.measure import collect, measure
    from simcse_jax.runs.workdir import versions

    data = read_data(args.data, args.column, args.split, args.sentences or 0)
    loaded = {label: load(name, args.batch_size) for label, name in models.names.items()}
    max_length = min(model.max_length for model, _ in loaded.values())
    encoders = {label: model.token_encoder(max_length) for label, (model, _) in loaded.items()}
    surveys = {
        label: tokens.survey(encoder, data.sentences, protocol, args.data) for label, encoder in encoders.items()
    }
    for pair in models.pairs:
        tokens.check_same_tokens({models.names[label]: surveys[label] for label in pair})
    for (one, _), (other, _) in itertools.combinations(models.pairs, 2):
        tokens.check_in_common(surveys[one], surveys[other])
    found = {}
    with printing(True) as say:
        say(report.data_lines(data.name, surveys, max_length))
        for label, encoder in encoders.items():
            found[label] = measure(encoder, surveys[label], show_progress_bar=True)
            say(f"\n{label}\n{report.table(found[label])}")
        metrics = collect(models.names, models.pairs, surveys, found, data=data.name, max_length=max_length)
        if lines := report.change_lines(metrics):
            say(lines)
        sample, embeddings, poolers = sentences.sample(data.sentences, data.pairs), {}, {}
        for label, (model, pooler) in loaded.items():
            if pooler:
                embeddings[label] = model.encode_counted(sample.texts, pooler=pooler).embeddings
                poolers[label] = pooler
            else:
                say(f"no map of {label}: how {model.name} pools is not known here; name a pooler, {model.name}@avg")
        compared, maps = sentences.compare(sample, embeddings, models.pairs, data.name, poolers)
        if compared:
            say("\n" + "\n".join([sentences.headline(compared), *sentences.changed(compared)]))
        names = report.write(metrics, output, versions=versions(), compared=compared, maps=maps)
        say("\n" + report.files_line(output, report.METRICS, names))


def analyze_rank(args: Namespace, models: Models, output: Path) -> None:
    """Measures the rank of the correlation of each model's dimensions, and writes a report on it.

    Raises:
      UserError: when the data or a model is wrong, or the data have fewer sentences than a batch.
    """
    from simcse_jax.evaluation.analysis import rank
    from simcse_jax.evaluation.analysis.inputs import read_data
    from simcse_jax.runs.workdir import versions

    found, data, _ = read_data(args.data, args.column, args.split, args.sentences or 0)
    sentences = [sentence for sentence in dict.fromkeys(found) if sentence.strip()]  # equal rows would cost a rank
    rank.draw(len(sentences), max(args.rank), 1, args.seed)
    loaded = {label: load(name, args.batch_size) for label, name in models.names.items()}
    if unknown := next((model.name for model, pooler in loaded.values() if not pooler), None):
        raise UserError(f"how {unknown} pools is not known here; name a pooler, {unknown}@avg")
    about = {"sentences": len(sentences), "batches of each size": BATCHES, "seed": args.seed}
    ranks = {}
    with printing(True) as say:
        say(f"{data}: {len(sentences):,} different sentences, {BATCHES} random batches of each size")
        for label, (model, pooler) in loaded.items():
            # As an objective gets them: not normalized, which would make them small next to N(0, 1).
            embeddings = model.encode_counted(sentences, pooler=pooler, normalize_to_unit=False).embeddings
            measured = rank.measure(embeddings, args.rank, args.artificial, batches=BATCHES, seed=args.seed)
            ranks[label] = rank.Ranks(models.names[label], embeddings.shape[1], measured)
            say(f"\n{label}, {embeddings.shape[1]} dimensions\n{rank.table(ranks[label])}")
        names = rank.write(ranks, output, data=data, about=about, versions=versions())
        say(f"\n{rank.summarize(ranks)}\n\n{output}: {', '.join(names)}")


def analyze_runs(args: Namespace, protocol: Protocol, output: Path) -> None:
    """Draws how the last layer of runs changed: on the data or, without data, as it was measured in training.

    Raises:
      UserError: naming the run that has nothing to measure or was measured on other sentences.
    """
    from simcse_jax.evaluation.analysis import dynamics, report
    from simcse_jax.evaluation.analysis.inputs import read_data
    from simcse_jax.runs.dynamics import read_run, recorded
    from simcse_jax.runs.workdir import versions

    data = read_data(args.data, args.column, args.split, args.sentences or 0) if args.data else None
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
        say("\n".join(dynamics.changed(named)))
        say(report.files_line(output, dynamics.DYNAMICS, names))


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
    from simcse_jax.evaluation.analysis import dynamics, last_layer
    from simcse_jax.runs.dynamics import measure_checkpoints, survey_checkpoints

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
