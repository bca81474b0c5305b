"""simcse-jax analyze --pair M BASE --data FILE --output DIR, or --models M …, or --runs A B [--data FILE]

The effect of contrastive learning on the space: isotropy, self- and intra-sentence similarity of every layer, and the
contributions of single dimensions, measured as in the isotropy paper; of any number of models, next to those that they
were trained from. `--runs` draws how the last layer changed while runs trained; `--rank` measures the rank of the
correlation of dimensions (SimCSE++, section 4.2). Writes numbers, pictures and a page with both.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from simcse_jax.commands.command_line import parse_model
from simcse_jax.commands.verbs import BatchSize, Count, Numbers, Texts, verb
from simcse_jax.errors import UserError, require
from simcse_jax.evaluation.analysis.inputs import Models, SpaceData, choose, read_data
from simcse_jax.evaluation.analysis.tokens import Protocol
from simcse_jax.evaluation.plotting import short_names, unique
from simcse_jax.host import streams
from simcse_jax.host.outputs import output_folder, printing
from simcse_jax.host.progress import doing
from simcse_jax.host.storage import Folder, as_path

if TYPE_CHECKING:
    from simcse_jax.evaluation.analysis.rank import Ranks
    from simcse_jax.runs.dynamics import Point
    from simcse_jax.simcse import SimCSE

FILES = ("*.json", "report.html", "*.png", "*.svg")  # what it writes
BATCH = 64  # of SimCSE++, Table 2
BATCHES = 10  # random ones, of each size
MOST_ROWS = 10_000  # far more than a model has dimensions
DEFAULT = Protocol()
PROTOCOL = Group("Protocol", help="What the paper leaves open; the defaults come closest to it.")


@verb
def analyze(
    models: Annotated[Texts, Parameter(alias="--model", metavar="NAME[=LABEL]...")] = (),
    *,
    pair: Annotated[Sequence[tuple[str, str]], Parameter(metavar="MODEL BASE")] = (),
    runs: Annotated[Texts, Parameter(metavar="WORKDIR...")] = (),
    data: str | None = None,
    output: str,
    column: str | None = None,
    split: Literal["dev", "test"] = "test",
    sentences: Count | None = None,
    rank: Annotated[Numbers | None, Parameter(consume_multiple=True, validator=Number(gte=2, lte=MOST_ROWS))] = None,
    artificial: Annotated[Numbers, Parameter(validator=Number(gte=0, lte=MOST_ROWS))] = (0, 100, 300, 704),
    batch_size: BatchSize = 64,
    protocol: Annotated[Protocol, Parameter(name="*", group=PROTOCOL)] = DEFAULT,
) -> Any:
    """Measures isotropy and contextualization of models' layers, or how the last one changed in training.

    Needs models and sentences, or the folders of runs. Writes numbers, pictures and a page to --output.

    Args:
      models: Folders, hub ids, package:NAME or workdirs; NAME@3: 3 layers, NAME@cls: that pooler; LABEL: its name in
        the report.
      pair: A model, as among the models or by its label there, and the one it was trained from (or any with the same
        tokens): which tokens changed, and with several pairs, are they the same ones (eq. 10, 11)? May be repeated.
      runs: In place of models: kept checkpoints, measured on the data; without data the records of analysis.every.
      data: The sentences to measure on: a .txt, .csv, .tsv, .jsonl or .parquet file, or SentEval's data/downstream.
      output: The folder for metrics.json, report.html and the pictures.
      column: The sentences' column. By default sentence, text, sent0, anchor, or the only one.
      split: Of STS-B, where the data are SentEval's folder.
      sentences: How many, spread evenly over the data. By default all.
      rank: In place of the report: the rank of the correlation of the models' dimensions in batches of so many
        sentences (64 if no number is given) with artificial rows.
      artificial: Rows of N(0, 1) that are added to a batch for its rank.
      protocol: How tokens are measured, a `simcse_jax.evaluation.analysis.tokens.Protocol`.

    Returns:
      The numbers: of models as in metrics.json; of `rank` and of `runs` by the labels of the models or runs.

    Raises:
      UserError: for any mistake in the options, the data, the models or the runs; most before anything is encoded.
    """
    if runs and (models or pair or rank is not None):
        raise UserError("--runs: does not go with --models, --pair or --rank; leave one of them out")
    if not (models or pair or runs):
        raise UserError("nothing to measure; give --models, --pair or --runs")
    chosen = choose(models, pair)
    require("train", "matplotlib")
    inputs = {"--data": data} | {f"--models {name}": parse_model(name).name for name in chosen.names.values()}
    folder = output_folder(output, inputs | {f"--runs {name}": name for name in runs}, files=FILES)
    texts = None if data is None else read_data(data, column, split, sentences or 0)
    if runs:
        return analyze_runs(runs, texts, protocol, batch_size, folder)
    if texts is None:
        raise UserError("--data: is missing; give a file of sentences")
    if rank is None:
        return analyze_models(chosen, texts, protocol, batch_size, folder)
    batches = sorted({*rank}) or [BATCH]
    return analyze_rank(chosen, texts, batches, sorted({*artificial}) or [0], protocol.seed, batch_size, folder)


def analyze_models(
    models: Models, data: SpaceData, protocol: Protocol, batch_size: int, output: Path
) -> Mapping[str, Any]:
    """Measures models, and writes the report to the folder `output`.

    Reads all models first, so that a mistake is reported before hours of encoding.
    """
    from simcse_jax.evaluation.analysis import report, tokens
    from simcse_jax.evaluation.analysis import sentences as sentence_space
    from simcse_jax.evaluation.analysis.measure import collect, measure
    from simcse_jax.runs.workdir import versions

    loaded = {label: load(name, batch_size) for label, name in models.names.items()}
    max_length = min(model.max_length for model, _ in loaded.values())
    encoders = {label: model.token_encoder(max_length) for label, (model, _) in loaded.items()}
    surveys = {
        label: tokens.survey(encoder, data.sentences, protocol, data.name) for label, encoder in encoders.items()
    }
    for pair in models.pairs:
        tokens.check_same_tokens({models.names[label]: surveys[label] for label in pair})
    measured = {}
    with printing(True) as say:
        for label, encoder in encoders.items():
            with doing(label):
                measured[label] = measure(encoder, surveys[label], show_progress_bar=True)
        metrics = collect(models.names, models.pairs, surveys, measured, data=data.name, max_length=max_length)
        sample, embeddings, poolers = sentence_space.sample(data.sentences, data.pairs), {}, {}
        notes = []
        for label, (model, pooler) in loaded.items():
            if pooler:
                embeddings[label] = model.encode_counted(sample.texts, pooler=pooler).embeddings
                poolers[label] = pooler
            else:
                unknown = f"how {model.name} pools is not known here; name a pooler, {model.name}@avg"
                notes.append(f"no map of {label}: {unknown}")
        compared, maps = sentence_space.compare(sample, embeddings, models.pairs, data.name, poolers)
        if compared:
            conclusion = streams.paint(sentence_space.headline(compared), streams.BOLD, sys.stdout)
            say("\n".join([conclusion, *sentence_space.changed(compared), ""]))
        say("\n".join([*notes, report.data_lines(data.name, surveys, max_length)]))
        for label, measurement in measured.items():
            say(f"\n{label}\n{report.table(measurement)}")
        if lines := report.change_lines(metrics):
            say(lines)
        names = report.write(metrics, output, versions=versions(), compared=compared, maps=maps)
        say("\n" + report.files_line(output, report.METRICS, names))
    return metrics


def analyze_rank(
    models: Models,
    data: SpaceData,
    batches: Sequence[int],
    artificial: Sequence[int],
    seed: int,
    batch_size: int,
    output: Path,
) -> "dict[str, Ranks]":
    """Measures the rank of the correlation of each model's dimensions, and writes a report on it.

    Args:
      batches: numbers of sentences.
      artificial: numbers of rows of N(0, 1).
    """
    from simcse_jax.evaluation.analysis import rank
    from simcse_jax.runs.workdir import versions

    # Equal rows would cost a rank.
    sentences = [sentence for sentence in dict.fromkeys(data.sentences) if sentence.strip()]
    rank.draw(len(sentences), max(batches), 1, seed)
    loaded = {label: load(name, batch_size) for label, name in models.names.items()}
    if unknown := next((model.name for model, pooler in loaded.values() if not pooler), None):
        raise UserError(f"how {unknown} pools is not known here; name a pooler, {unknown}@avg")
    about = {"sentences": len(sentences), "batches of each size": BATCHES, "seed": seed}
    ranks = {}
    for label, (model, pooler) in loaded.items():
        # As an objective gets them: not normalized, which would make them small next to N(0, 1).
        embeddings = model.encode_counted(sentences, pooler=pooler, normalize_to_unit=False).embeddings
        measured = rank.measure(embeddings, batches, artificial, batches=BATCHES, seed=seed)
        ranks[label] = rank.Ranks(models.names[label], embeddings.shape[1], measured)
    with printing(True) as say:
        say(streams.paint(rank.summarize(ranks), streams.BOLD, sys.stdout))
        say(f"\n{data.name}: {len(sentences):,} different sentences, {BATCHES} random batches of each size")
        for label, found in ranks.items():
            say(f"\n{label}, {found.dimensions} dimensions\n{rank.table(found)}")
        names = rank.write(ranks, output, data=data.name, about=about, versions=versions())
        say(f"\n{output}: {', '.join(names)}")
    return ranks


def analyze_runs(
    workdirs: Sequence[str],
    data: SpaceData | None,
    protocol: Protocol,
    batch_size: int,
    output: Path,
) -> "dict[str, list[Point]]":
    """Draws how the last layer of runs changed: on the data or, without data, as it was measured in training."""
    from simcse_jax.evaluation.analysis import dynamics, report
    from simcse_jax.runs.dynamics import read_measurements, read_run
    from simcse_jax.runs.workdir import versions

    folders = {name: as_path(name) for name in workdirs}
    runs = {name: read_run(folder) for name, folder in folders.items()}
    labels = dict(zip(runs, unique(short_names([*runs]), [*runs]), strict=True))
    lines: list[str] = []
    with printing(True) as say:
        if data is None:
            points, about, where = read_measurements(folders, runs)
        else:
            points, about, lines = measure_runs(data, protocol, batch_size, folders, labels)
            where = data.name
        by_label = {labels[name]: run for name, run in points.items()}
        named = {label: name for name, label in labels.items()}
        names = dynamics.write(by_label, output, data=where, about=about, workdirs=named, versions=versions())
        say(streams.paint("\n".join(dynamics.changed(by_label)), streams.BOLD, sys.stdout))
        say("\n".join(["", *lines, *[""] * bool(lines), report.files_line(output, dynamics.DYNAMICS, names)]))
    return by_label


def measure_runs(
    data: SpaceData,
    protocol: Protocol,
    batch_size: int,
    folders: dict[str, Folder],
    labels: dict[str, str],
) -> "tuple[dict[str, list[Point]], dict[str, Any], list[str]]":
    """Measures every kept checkpoint of every run.

    Returns:
      The points by the runs' names, how they were measured, and lines for a terminal: of the data, and of each point.
    """
    from simcse_jax.evaluation.analysis import dynamics, last_layer
    from simcse_jax.runs.dynamics import measure_checkpoints, survey_checkpoints

    survey, max_length = survey_checkpoints(folders, data.sentences, protocol, data.name, batch_size)
    positives = last_layer.positives(data.pairs, len(data.sentences)) if data.pairs else []
    sample = last_layer.Sample(survey.sentences, positives)
    lines = [f"{data.name}: {len(survey.sentences):,} sentences, {survey.units.sum():,} tokens"]
    points: dict[str, list[Point]] = {}
    for name, folder in folders.items():
        points[name] = []
        for point in measure_checkpoints(folder, survey, sample, max_length, batch_size):
            points[name].append(point)
            numbers = ", ".join(f"{field} {value:.4f}" for field, value in point.items() if field in dynamics.FIELDS)
            lines.append(f"{labels[name]}, step {point['step']}: {numbers}".replace("_", " "))
    about = {"source": "kept checkpoints", "sentences": len(survey.sentences), "tokens": int(survey.units.sum())}
    about |= {"pairs_of_alignment": len(positives)}
    return points, about | dataclasses.asdict(protocol) | {"max_length": max_length}, lines


def load(name: str, batch_size: int) -> tuple["SimCSE", str | None]:
    """A model, and its pooler; None where its own is not known here, which the map of the sentences alone needs."""
    from simcse_jax.simcse import SimCSE

    spec = parse_model(name)
    # Any pooler will do: a model whose own is unknown is measured too.
    model = SimCSE(spec.name, pooler=spec.pooler or "avg", num_layers=spec.num_layers, batch_size=batch_size)
    return model, spec.pooler or model.own_pooler
