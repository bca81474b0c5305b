"""simcse-jax geometry --models A B --runs W --data SENTEVAL_FOLDER --output DIR

Alignment, uniformity, singular values and cosine densities on STS-B, for models in comparison (`--models`; SimCSE,
Figures 3, F.1 and G.1; SimCSE++, Figure 1) and for the checkpoints of training runs (`--runs`; SimCSE, Figure 2).
Without `--data` it draws what the runs recorded while they trained: the same plane, and their development scores over
the steps (SimCSE++, section 5.3). Of runs it also draws the spectrum and the terms of the objective (SimCSE, Section
5). Writes numbers and pictures.
"""

import functools
import json
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simcse_jax.choices import MEASURES, POSTPROCESSING, RETRIEVAL, TASKS
from simcse_jax.commands.command_line import (
    Model,
    Parser,
    add_batch_size,
    add_postprocess,
    add_prompts,
    checked_split,
    parse_model,
)
from simcse_jax.config.checks import check_postprocess
from simcse_jax.errors import UserError, require
from simcse_jax.evaluation.plotting import short_names, unique
from simcse_jax.host.names import split_label
from simcse_jax.host.outputs import output_folder, printing
from simcse_jax.host.progress import doing
from simcse_jax.host.storage import as_path, local_path

if TYPE_CHECKING:
    from simcse_jax.evaluation.analysis.sentences import Sample
    from simcse_jax.evaluation.analysis.spectrum import Spectrum
    from simcse_jax.evaluation.convergence import Curve
    from simcse_jax.evaluation.evaluator import Encode
    from simcse_jax.evaluation.geometry import Geometry
    from simcse_jax.evaluation.geometry_pictures import Place
    from simcse_jax.evaluation.postprocess import Postprocess
    from simcse_jax.evaluation.sts import Pairs
    from simcse_jax.simcse import SimCSE

FILE = "geometry.json"
FILES = (FILE, "sentences.json", "report.html", "*.png", "*.svg")  # what it writes
SCORES = ("sts_avg", "stsb")
Found = tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]  # facts, pictures, and what changed for sentences


class Data(NamedTuple):
    """What models are measured on."""

    name: str
    pairs: "Pairs"
    tasks: "dict[str, Pairs]"  # the similarity tasks whose average is the models' score; empty: the pairs are
    fit_on: "dict[str, Postprocess]"  # by method


class Measure(NamedTuple):
    """Measures encoders, and keeps the embeddings that the report compares."""

    pairs: "Pairs"
    sample: "Sample"  # of their sentences
    embeddings: dict[str, np.ndarray]  # of the sample, by the models' labels
    changes: list[tuple[str, str]]  # the labels of a model and of the one before

    def __call__(self, encode: "Encode", label: str, temperature: float | None = None) -> "Geometry":
        """Measures one encoder."""
        from simcse_jax.evaluation import geometry

        row_of: dict[str, np.ndarray] = {}

        def remembered(sentences: Sequence[str]) -> np.ndarray:
            rows = encode(sentences)
            row_of.update(zip(sentences, rows, strict=True))
            return rows

        measured = geometry.measure(remembered, self.pairs, temperature)
        self.embeddings[label] = np.stack([row_of[text] for text in self.sample.texts])
        return measured


class Options(NamedTuple):
    """The command line."""

    args: Namespace
    models: dict[str, Model]  # as they were given
    panels: dict[str, list[str]]  # the given models of each panel, by its title
    runs: dict[str, str]  # labels, empty for none, by the runs' folders


def main() -> None:
    """Reads the data and finds all models and checkpoints first, so that a mistake is reported immediately."""
    parser = Parser(
        "geometry",
        description="Measures alignment, uniformity, singular values and cosines of models and of runs' checkpoints. "
        "Needs graded pairs and models or runs with kept checkpoints, or runs that were measured or scored while they "
        "trained. Writes geometry.json and pictures to --output.",
    )
    options = read_arguments(parser)
    args, models, runs = options.args, options.models, options.runs
    require("train", "matplotlib")
    inputs = {"--data": args.data, "--postprocess-data": args.postprocess_data}
    inputs |= {f"--models {spec}": model.name for spec, model in models.items()}
    output = output_folder(args.output, inputs | {f"--runs {name}": name for name in runs}, files=FILES)
    with printing(True) as say:
        facts, drawn, compared = draw_records(runs, say) if args.data is None else draw_measured(options, say)
        names = write(output, facts, drawn, compared)
        say(f"{output}: {', '.join(names)}")


def draw_records(runs: Mapping[str, str], say: Callable[[str], None]) -> Found:
    """Draws what runs recorded while they trained; says the best scores.

    Raises:
      UserError: when a run recorded nothing.
    """
    from simcse_jax.evaluation import convergence, geometry_pictures
    from simcse_jax.evaluation.analysis import spectrum
    from simcse_jax.runs.dynamics import folder_name, read_records

    records = read_records({name: as_path(name) for name in runs}, runs)
    firsts = list(records.groups)
    shown = unique(short_names([folder_name(name) for name in firsts]), firsts)
    labels = {name: runs[name] or label for name, label in zip(firsts, shown, strict=True)}
    if len(set(labels.values())) < len(labels):  # one label for runs that are no group
        repeated = next(label for label in labels.values() if list(labels.values()).count(label) > 1)
        raise UserError(
            f"--runs: the label {repeated} is given to runs that differ in more than their seed, or not in it"
        )
    curves: dict[str, Curve] = {}
    places: dict[str, list[Place]] = {}
    spectra: dict[str, dict[int, Spectrum]] = {}
    facts: dict[str, Any] = {}
    for first, names in records.groups.items():
        label = labels[first]
        facts[label] = {"workdirs": names}
        scored = [records.scores[name] for name in names if name in records.scores]
        measured = [records.plane[name] for name in names if name in records.plane]
        if scored:
            curves[label] = convergence.curve(scored)
            facts[label]["scores"] = curves[label].to_json()
            say(f"{label}: {curves[label]}")
        if measured:
            places[label] = geometry_pictures.mean_of(measured)
            facts[label]["points"] = [place.to_json() for place in places[label]]
            say(f"{label}: alignment and uniformity at {len(places[label])} steps")
        if flattened := [records.spectra[name] for name in names if name in records.spectra]:
            spectra[label] = spectrum.mean_of(flattened)
            facts[label]["spectrum"] = [{"step": step, **one.rounded()} for step, one in spectra[label].items()]
    title = f"{records.measured_on} (recorded)"
    drawn = draw_spectra(spectra, title)
    if places:
        drawn["runs"] = geometry_pictures.runs(places, title)
    if curves:
        where = {"stsb_dev": "STS-B dev", "sickr_dev": "SICK-R dev"}.get(records.scored_on, records.scored_on)
        measure = MEASURES.get(records.scored_on.removeprefix(f"{RETRIEVAL}_"), "")
        chosen = ("retrieval", measure) if measure else (where, "Spearman")
        drawn["convergence"] = convergence.convergence(curves, *chosen)
    return {"measured_on": records.measured_on, "scored_on": records.scored_on, "runs": facts}, drawn, None


def draw_measured(options: Options, say: Callable[[str], None]) -> Found:
    """Measures models and checkpoints, and draws them."""
    from simcse_jax.evaluation import geometry, geometry_pictures
    from simcse_jax.evaluation.analysis import sentences
    from simcse_jax.runs.dynamics import steps_of

    args, models = options.args, options.models
    data = read_data(args, models)
    for model in models.values():  # seconds each; a mistake in the last one would cost minutes
        check_fit(open_model(model, args), model, data)
    for name in options.runs:
        steps_of(as_path(name))
    positives = int((data.pairs.gold > geometry.POSITIVE).sum())
    facts: dict[str, Any] = {"data": data.name, "pairs": len(data.pairs.gold), "positives": positives}
    say(f"{args.data}: {data.name}, {len(data.pairs.gold)} pairs, {positives} of them rated above 4")
    grid = [round(float(cosine), 4) for cosine in geometry.GRID]
    measure = Measure(data.pairs, sentences.sample([], data.pairs), {}, [])
    with doing():
        found, scores, model_facts = measure_models(models, data, args, measure, say)
        places, run_facts = measure_runs(options.runs, measure, args.batch_size, say)
    compared, _ = sentences.compare(measure.sample, measure.embeddings, measure.changes, data.name)
    if compared:
        say("\n".join(["", sentences.headline(compared), *sentences.changed(compared)]))
    facts |= {"density_at": grid, "models": model_facts, "runs": run_facts}
    drawn = {}
    if found:
        by_label = {
            title: {found[spec][0]: found[spec][1] for spec in specs} for title, specs in options.panels.items()
        }
        every = dict(found.values())
        drawn["models"] = geometry_pictures.models(every, data.name, scores, score_title(data))
        drawn["singular_values"] = geometry_pictures.singular_values(by_label, data.name)
        drawn["cosines"] = geometry_pictures.cosines(by_label, data.name)
    if places:
        drawn["runs"] = geometry_pictures.runs(places, data.name)
        spectra = {
            label: {place.step: place.geometry.spectrum for place in of_run if place.geometry}
            for label, of_run in places.items()
        }
        drawn |= draw_spectra(spectra, data.name)
    return facts, drawn, compared


def draw_spectra(spectra: "Mapping[str, Mapping[int, Spectrum]]", title: str) -> dict[str, dict[str, bytes]]:
    """The pictures of the runs' spectra over their steps; none without any."""
    from simcse_jax.evaluation import spectrum_pictures

    if not any(spectra.values()):
        return {}
    return {"spectrum": spectrum_pictures.spectrum(spectra, title), "terms": spectrum_pictures.terms(spectra, title)}


def read_data(args: Namespace, models: Mapping[str, Model]) -> Data:
    """The graded pairs, the tasks of the score, and the sentences of each post-processing.

    Raises:
      UserError: for anything that is wrong with them.
    """
    from simcse_jax.evaluation import geometry, postprocess, sts

    pairs = geometry.read(args.data, args.split)
    is_file = local_path(args.data).is_file()
    if is_file and args.score == "sts_avg":
        raise UserError(f"--score sts_avg: {args.data} is a file of pairs; give SentEval's data/downstream")
    tasks: dict[str, Pairs] = {}
    if models and not is_file and args.score != "stsb":
        tasks, _ = sts.read(args.data, TASKS)
    name = Path(args.data).name if is_file else f"STS-B {args.split}"
    fit_on = {}
    for method in sorted({model.postprocess for model in models.values()} - {""}):
        dimensions = args.postprocess_dimensions if method == "whitening" else 0
        fit_on[method] = postprocess.read(method, args.postprocess_data, dimensions, args.data)
    return Data(name, pairs, tasks, fit_on)


def score_title(data: Data) -> str:
    """What the colours are, with the number of tasks that are averaged where some are missing."""
    if not data.tasks:
        return f"Spearman × 100 on {data.name}"
    missing = [task for task in TASKS if task not in data.tasks]
    which = f" ({len(data.tasks)} of {len(TASKS)} tasks, without {', '.join(missing)})" if missing else ""
    return f"average STS, Spearman × 100{which}"


def open_model(model: Model, args: Namespace) -> "SimCSE":
    """The encoder of a model."""
    from simcse_jax.simcse import SimCSE

    encoder = SimCSE(
        model.name,
        pooler=model.pooler,
        num_layers=model.num_layers,
        batch_size=args.batch_size,
        truncate_dim=args.truncate_dim,
    )
    encoder.prompt_of(prompt=args.prompt, prompt_name=args.prompt_name)
    return encoder


def check_fit(encoder: "SimCSE", model: Model, data: Data) -> None:
    """Refuses a post-processing that has too few sentences, or keeps too many dimensions."""
    from simcse_jax.evaluation import postprocess, sts

    if model.postprocess:
        tasks = [(sts.DEVELOPMENT, data.pairs), *data.tasks.items()]
        postprocess.check(data.fit_on[model.postprocess], encoder.dimension, tasks)


def measure_models(
    models: Mapping[str, Model], data: Data, args: Namespace, measure: Measure, say: Callable[[str], None]
) -> "tuple[dict[str, tuple[str, Geometry]], dict[str, float], dict[str, Any]]":
    """Measures each model and says so.

    Returns:
      The labels on the pictures and the measures, by what was given; the scores, and the facts to write, by label.
    """
    from simcse_jax.evaluation import postprocess, sts
    from simcse_jax.evaluation.evaluator import by_task

    names = short_names([model.name for model in models.values()])
    shown = [model.label or name + model.details for name, model in zip(names, models.values(), strict=True)]
    found: dict[str, tuple[str, Geometry]] = {}
    scores: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for (spec, model), label in zip(models.items(), unique(shown, list(models)), strict=True):
        encoder = open_model(model, args)
        prompt = {"prompt": args.prompt, "prompt_name": args.prompt_name}
        encode = functools.partial(encoder.encode, show_progress_bar=True, **prompt)
        with doing(label):
            embed = postprocess.transformed(encode, data.fit_on.get(model.postprocess))
            for_task = getattr(embed, "for_task", None)
            measured = measure(for_task(sts.DEVELOPMENT, data.pairs) if for_task else embed, label)
            results = by_task(sts.evaluate, embed, data.tasks) if data.tasks else {}
        correlations = {task: result["spearman"] for task, result in results.items()}
        found[spec] = (label, measured)
        scores[label] = float(np.mean(list(correlations.values()))) if correlations else measured.spearman
        facts[label] = {"model": spec, "pooler": encoder.pooler, "postprocess": model.postprocess}
        facts[label] |= {"score": round(scores[label], 4), "sts": correlations, **measured.to_json()}
        average = f", {score_title(data)}: {scores[label]:.2f}" if correlations else ""
        say(line(label, measured) + average)
    return found, scores, facts


def measure_runs(
    runs: Mapping[str, str], measure: Measure, batch_size: int, say: Callable[[str], None]
) -> "tuple[dict[str, list[Place]], dict[str, Any]]":
    """Measures each kept checkpoint of each run: the places, and the facts to write, by the runs' labels."""
    from simcse_jax.evaluation.geometry_pictures import Place
    from simcse_jax.runs.dynamics import checkpoint_encoders

    found: dict[str, list[Place]] = {}
    facts = {}
    shown = [label or name for label, name in zip(runs.values(), short_names(list(runs)), strict=True)]
    for name, label in zip(runs, unique(shown, list(runs)), strict=True):
        found[label], checkpoints, names = [], [], []
        for kept in checkpoint_encoders(as_path(name), batch_size):
            names.append(f"{label}, step {kept.step}")
            with doing(names[-1]):
                measured = measure(kept.embed.with_progress, names[-1], kept.temperature)
            found[label].append(Place(kept.step, measured.alignment, measured.uniformity, measured))
            checkpoints.append({"step": kept.step, **measured.numbers()})
            say(line(names[-1], measured))
        for between in names[1:-1]:  # the report compares the ends
            del measure.embeddings[between]
        measure.changes.append((names[-1], names[0]))
        facts[label] = {"workdir": name, "checkpoints": checkpoints}
    return found, facts


def write(
    output: Path, result: dict[str, Any], drawn: Mapping[str, dict[str, bytes]], compared: dict[str, Any] | None
) -> list[str]:
    """Writes the numbers, the pictures and the report, all or none; returns their names."""
    from simcse_jax.evaluation import geometry_pictures
    from simcse_jax.evaluation.analysis import page, sentences

    files: dict[str, str | bytes] = {FILE: json.dumps(result, indent=2, ensure_ascii=False) + "\n"}
    files |= {f"{name}.{kind}": content for name, kinds in drawn.items() for kind, content in kinds.items()}
    parts = {"geometry": geometry_pictures.part(result, drawn)}
    if compared:
        files[sentences.SENTENCES] = json.dumps(compared, ensure_ascii=False) + "\n"
        parts["sentences"] = sentences.part(compared)
    page.write(output, files, parts)
    return [FILE, page.PAGE, *(f"{name}.png and .svg" for name in drawn)]


def line(label: str, found: "Geometry") -> str:
    """What is printed of a model."""
    numbers = f"alignment {found.alignment:.4f}, uniformity {found.uniformity:.4f}"
    return f"{label}: {numbers}, Spearman × 100 {found.spearman:.2f}"


def read_arguments(parser: Parser) -> Options:
    """The options; `parser` has none yet.

    Raises:
      UserError: naming the option that is wrong, or has no effect with the others.
    """
    _add_options(parser)
    args = parser.parse_args()
    given = [spec for panel in args.models for spec in panel]
    if not given and not args.runs:
        raise UserError("nothing to measure; give --models, --runs or both")
    for option, names in (("--models", given), ("--runs", args.runs), ("--panels", args.panels)):
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated:
            raise UserError(f"{option}: {repeated} is given twice")
    if len(args.panels) not in (0, len(args.models)):
        raise UserError(f"--panels: must have a title for each --models, {len(args.models)}; it has {len(args.panels)}")
    if not given:
        alone = ("prompt", "prompt_name", "truncate_dim", "score", "postprocess", "postprocess_data")
        for option in (*alone, "postprocess_dimensions"):
            if getattr(args, option) not in (None, "", 0):
                raise UserError(f"--{option.replace('_', '-')}: is for --models, which is not given")
    elif args.data is None:
        raise UserError("--data: is missing; --models are measured on graded pairs, --runs alone draw their records")
    for option in ("prompt", "prompt_name", "truncate_dim") if given and args.runs else ():
        if getattr(args, option) is not None:
            raise UserError(
                f"--{option.replace('_', '-')}: is for --models, and the checkpoints of --runs are encoded without it; "
                "measure them separately"
            )
    args.split = checked_split(args.split, args.data)
    runs: dict[str, str] = {}
    for spec in args.runs:
        name, label = split_label(spec)
        if name in runs:
            raise UserError(f"--runs: {name} is given twice")
        runs[name] = label
    titles = args.panels or [
        f"panel {number}" if len(args.models) > 1 else "" for number in range(1, 1 + len(args.models))
    ]
    models = read_models(given, args)
    return Options(args, models, dict(zip(titles, args.models, strict=True)), runs)


def _add_options(parser: Parser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "--models",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME[@LAYERS][@POOLER][@METHOD][=LABEL]",
        help="folders, hub ids, package:NAME, workdirs or glove:FILE; NAME@3 keeps the first 3 layers, NAME@avg takes "
        f"that pooler, NAME@whitening that post-processing ({' or '.join(POSTPROCESSING)}); given again: another panel",
    )
    parser.add_argument("--panels", nargs="+", default=[], metavar="TITLE", help="the panels' titles, one each")
    parser.add_argument(
        "--runs",
        nargs="+",
        default=[],
        metavar="WORKDIR[=LABEL]",
        help="runs: their kept checkpoints (checkpoint.keep_every=n), or without --data what they recorded "
        "(analysis.every=n, eval.every=n); those that differ in the seed alone are drawn as one",
    )
    parser.add_argument("--data", help="SentEval's data/downstream, or a file of pairs graded 0 to 5")
    parser.add_argument(
        "--split",
        choices=("dev", "test", "all"),
        help="the split of STS-B (default: test); all is train, dev and test together",
    )
    parser.add_argument(
        "--score",
        choices=SCORES,
        help="the models' colours: the average of the seven similarity tasks' test sets, or STS-B's pairs alone "
        "(default: sts_avg if --data is a folder)",
    )
    add_batch_size(parser)
    add_prompts(parser)
    add_postprocess(parser, POSTPROCESSING, "for models that name none")
    parser.add_argument("--output", required=True, help="the folder for geometry.json and the pictures")


def read_models(given: list[str], args: Namespace) -> dict[str, Model]:
    """The models by what was given, with their labels and methods.

    Raises:
      UserError: when a label is given twice, or a post-processing lacks its data.
    """
    models: dict[str, Model] = {}
    for spec in given:
        name, label = split_label(spec)
        model = parse_model(name, POSTPROCESSING)
        models[spec] = model._replace(label=label, postprocess=model.postprocess or args.postprocess)
    labels = [model.label for model in models.values() if model.label]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated:
        raise UserError(f"--models: the label {repeated} is given twice")
    methods = {model.postprocess for model in models.values()} - {""}
    # Of several methods whitening is the one that takes dimensions.
    method = args.postprocess or ("whitening" if "whitening" in methods else next(iter(methods), ""))
    check_postprocess(method, args.postprocess_data, args.postprocess_dimensions, "--postprocess", "-")
    return models
