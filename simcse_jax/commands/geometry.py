"""simcse-jax geometry --models A B --runs W --data SENTEVAL_FOLDER --output DIR

Alignment, uniformity, singular values and cosine densities on STS-B, for models in comparison (`--models`; SimCSE,
Figures 3, F.1 and G.1; SimCSE++, Figure 1) and for the checkpoints of training runs (`--runs`; SimCSE, Figure 2).
Without `--data` it draws what the runs recorded while they trained: the same plane, and their development scores over
the steps (SimCSE++, section 5.3). Of runs it also draws the spectrum and the terms of the objective (SimCSE, Section
5). Writes numbers and pictures.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import cyclopts
import numpy as np
from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.choices import MEASURES, POSTPROCESSING, RETRIEVAL, TASKS
from simcse_jax.commands.command_line import ModelArgument, parse_model
from simcse_jax.commands.verbs import BatchSize, Prompt, PromptName, Texts, TruncateDim, verb
from simcse_jax.errors import UserError, require
from simcse_jax.evaluation.plotting import short_names, unique
from simcse_jax.host.names import split_label
from simcse_jax.host.outputs import output_folder, printing
from simcse_jax.host.progress import doing
from simcse_jax.host.storage import as_path, local_path

if TYPE_CHECKING:
    from simcse_jax.evaluation.analysis.sentences import SentenceSample
    from simcse_jax.evaluation.analysis.spectrum import Spectrum
    from simcse_jax.evaluation.convergence import Curve
    from simcse_jax.evaluation.evaluator import Encode
    from simcse_jax.evaluation.geometry import Geometry
    from simcse_jax.evaluation.geometry_pictures import PlanePoint
    from simcse_jax.evaluation.postprocess import Postprocess
    from simcse_jax.evaluation.sts import Pairs
    from simcse_jax.simcse import SimCSE

FILE = "geometry.json"
FILES = (FILE, "sentences.json", "report.html", "*.png", "*.svg")  # what it writes
Say = Callable[[str], None]
Open = Callable[[ModelArgument], "tuple[SimCSE, Encode]"]  # opens a model, with the function that encodes
Result = tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]  # facts, pictures, and what changed for sentences


def _group_models(_: Any, tokens: Sequence[cyclopts.Token]) -> list[list[str]]:
    groups: list[list[str]] = []
    for token in tokens:
        if not token.index:  # the option is given again
            groups.append([])
        groups[-1].append(token.value)
    return groups


Panels = Annotated[
    Sequence[str | Sequence[str]],
    Parameter(consume_multiple=1, converter=_group_models, metavar="NAME[=LABEL]..."),
]


class GeometryData(NamedTuple):
    """The data that models are measured on."""

    name: str
    pairs: "Pairs"
    tasks: "dict[str, Pairs]"  # the similarity tasks whose average is the models' score; empty: the pairs are
    fit_on: "dict[str, Postprocess]"  # by method


class Measure(NamedTuple):
    """Measures encoders, and keeps the embeddings that the report compares."""

    pairs: "Pairs"
    sample: "SentenceSample"  # of their sentences
    embeddings: dict[str, np.ndarray]  # of the sample, by the models' labels
    changes: list[tuple[str, str]]  # the labels of a model and of the one before

    def __call__(self, encode: "Encode", label: str, temperature: float | None = None) -> "Geometry":
        """Measures one encoder."""
        from simcse_jax.evaluation import geometry

        row_of: dict[str, np.ndarray] = {}

        def encode_and_keep(sentences: Sequence[str]) -> np.ndarray:
            rows = encode(sentences)
            row_of.update(zip(sentences, rows, strict=True))
            return rows

        measured = geometry.measure(encode_and_keep, self.pairs, temperature)
        self.embeddings[label] = np.stack([row_of[text] for text in self.sample.texts])
        return measured


@verb
def geometry(
    models: Panels = (),
    *,
    panels: Texts = (),
    runs: Annotated[Texts, Parameter(metavar="WORKDIR[=LABEL]...")] = (),
    data: str | None = None,
    output: str,
    split: Literal["dev", "test", "all"] = "test",
    score: Literal["sts_avg", "stsb"] | None = None,
    batch_size: BatchSize = 64,
    prompt: Prompt = None,
    prompt_name: PromptName = None,
    truncate_dim: TruncateDim = None,
    postprocess: Literal["whitening", "flow"] | None = None,
    postprocess_data: str | None = None,
    postprocess_dimensions: Annotated[int, Parameter(validator=Number(gte=0), show_default=False)] = 0,
) -> dict[str, Any]:
    """Measures alignment, uniformity, singular values and cosines of models and of runs' checkpoints.

    Needs graded pairs and models or runs with kept checkpoints, or runs that were measured or scored while they
    trained. Writes geometry.json and pictures to --output.

    Args:
      models: Folders, hub ids, package:NAME, workdirs or glove:FILE; NAME@3 keeps the first 3 layers, NAME@avg takes
        that pooler, NAME@whitening that post-processing (whitening or flow); given again: another panel. In Python a
        list of names, or a list of them for each panel.
      panels: The panels' titles, one each.
      runs: Their kept checkpoints (checkpoint.keep_every=n), or without data what they recorded (analysis.every=n,
        eval.every=n); those that differ in the seed alone are drawn as one.
      data: SentEval's data/downstream, or a file of pairs graded 0 to 5.
      output: The folder for geometry.json and the pictures.
      split: Of STS-B, where the data are SentEval's; all is train, dev and test together.
      score: The models' colours: the average of the seven similarity tasks' test sets, or STS-B's pairs alone. By
        default sts_avg if the data are a folder.
      postprocess: For models that name none. By default none.
      postprocess_data: Sentences to fit it on: a file; target, for each task those that are scored; or target_all, for
        each task those of its train, dev and test sets.
      postprocess_dimensions: Dimensions that whitening keeps. By default all.

    Returns:
      The numbers of geometry.json.

    Raises:
      UserError: for any mistake in the options, the data, the models or the runs; most before anything is encoded.
    """
    by_panel = specs_of_panels(models, panels)
    specs = [spec for panel in by_panel.values() for spec in panel]
    parsed = read_models(specs, postprocess or "", postprocess_data or "")
    labels = dict(map(split_label, runs))
    if not parsed and not labels:
        raise UserError("nothing to measure; give --models, --runs or both")
    if parsed and data is None:
        raise UserError("--data: is missing; --models are measured on graded pairs, --runs alone draw their records")
    require("train", "matplotlib")
    inputs = {"--data": data, "--postprocess-data": postprocess_data}
    inputs |= {f"--models {spec}": model.name for spec, model in parsed.items()}
    folder = output_folder(output, inputs | {f"--runs {name}": name for name in labels}, files=FILES)
    from simcse_jax.simcse import SimCSE

    def open_model(model: ModelArgument) -> "tuple[SimCSE, Encode]":
        options: dict[str, Any] = {"pooler": model.pooler, "num_layers": model.num_layers}
        encoder = SimCSE(model.name, batch_size=batch_size, truncate_dim=truncate_dim, **options)
        encoder.prompt_of(prompt, prompt_name)  # refuses a wrong one
        return encoder, functools.partial(
            encoder.encode, prompt=prompt, prompt_name=prompt_name, show_progress_bar=True
        )

    with printing(True) as say:
        if data is None:
            facts, drawn, compared = draw_records(labels, say)
        else:
            measured_on = read_data(data, split, score, parsed, postprocess_data or "", postprocess_dimensions)
            facts, drawn, compared = draw_measured(measured_on, parsed, by_panel, labels, open_model, batch_size, say)
        names = write(folder, facts, drawn, compared)
        say(f"{output}: {', '.join(names)}")
    return facts


def specs_of_panels(models: Sequence[str | Sequence[str]], titles: Sequence[str]) -> dict[str, Sequence[str]]:
    """The models of each panel, as they were given, by its title; refuses titles that are not one for each."""
    names = [model for model in models if isinstance(model, str)]
    groups = [*([names] if names else []), *(group for group in models if not isinstance(group, str))]
    if len(titles) not in (0, len(groups)) or len(set(titles)) < len(titles):
        raise UserError(f"--panels: must have a title for each --models, {len(groups)} different ones")
    several = len(groups) > 1
    titles = titles or [f"panel {number}" if several else "" for number in range(1, 1 + len(groups))]
    return dict(zip(titles, groups, strict=True))


def read_models(specs: Sequence[str], postprocess: str, fit_on: str) -> dict[str, ModelArgument]:
    """The models by what was given, with their labels and methods; refuses a method without its data."""
    models: dict[str, ModelArgument] = {}
    for spec in specs:
        name, label = split_label(spec)
        model = parse_model(name, POSTPROCESSING)
        models[spec] = model._replace(label=label, postprocess=model.postprocess or postprocess)
    if not fit_on and any(model.postprocess for model in models.values()):
        raise UserError("--postprocess-data: must be set for --postprocess: a file of sentences, target or target_all")
    return models


def draw_records(runs: Mapping[str, str], say: Say) -> Result:
    """Draws what runs recorded while they trained; says the best scores."""
    from simcse_jax.evaluation import convergence, geometry_pictures
    from simcse_jax.evaluation.analysis import spectrum
    from simcse_jax.runs.dynamics import folder_name, read_records

    records = read_records({name: as_path(name) for name in runs}, runs)
    firsts = list(records.groups)
    shown = short_names([folder_name(name) for name in firsts])
    shown = unique([runs[name] or label for name, label in zip(firsts, shown, strict=True)], firsts)
    labels = dict(zip(firsts, shown, strict=True))
    curves: dict[str, Curve] = {}
    places: dict[str, list[PlanePoint]] = {}
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
            facts[label]["spectrum"] = [
                {"step": step, **spectrum.rounded()} for step, spectrum in spectra[label].items()
            ]
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


def draw_measured(
    data: GeometryData,
    models: Mapping[str, ModelArgument],
    panels: Mapping[str, Sequence[str]],
    runs: Mapping[str, str],
    open_model: Open,
    batch_size: int,
    say: Say,
) -> Result:
    """Measures models, by what was given, and the checkpoints of runs, with their labels by folder; draws them."""
    from simcse_jax.evaluation import geometry, geometry_pictures, postprocess, sts
    from simcse_jax.evaluation.analysis import sentences
    from simcse_jax.runs.dynamics import kept_steps

    for model in models.values():  # seconds each; a mistake in the last one would cost minutes
        encoder, _ = open_model(model)
        if model.postprocess:
            tasks = [(sts.DEVELOPMENT, data.pairs), *data.tasks.items()]
            postprocess.check(data.fit_on[model.postprocess], encoder.dimension, tasks)
    for name in runs:
        kept_steps(as_path(name))
    positives = int((data.pairs.gold > geometry.POSITIVE).sum())
    say(f"{data.name}: {len(data.pairs.gold)} pairs, {positives} of them rated above 4")
    measure = Measure(data.pairs, sentences.sample([], data.pairs), {}, [])
    with doing():
        measured, scores, model_facts = measure_models(models, data, open_model, measure, say)
        places, run_facts = measure_runs(runs, measure, batch_size, say)
    compared, _ = sentences.compare(measure.sample, measure.embeddings, measure.changes, data.name)
    if compared:
        say("\n".join(["", sentences.headline(compared), *sentences.changed(compared)]))
    facts: dict[str, Any] = {"data": data.name, "pairs": len(data.pairs.gold), "positives": positives}
    facts |= {"density_at": [round(float(cosine), 4) for cosine in geometry.GRID]}
    facts |= {"models": model_facts, "runs": run_facts}
    drawn = {}
    if measured:
        by_panel = {title: dict(measured[spec] for spec in specs) for title, specs in panels.items()}
        drawn["models"] = geometry_pictures.models(dict(measured.values()), data.name, scores, score_title(data))
        values = {
            title: {name: its.spectrum.singular_values for name, its in by.items()} for title, by in by_panel.items()
        }
        title = f"Singular values of the embeddings of the sentences of {data.name}"
        drawn["singular_values"] = geometry_pictures.singular_values(values, title)
        drawn["cosines"] = geometry_pictures.cosines(by_panel, data.name)
    if places:
        drawn["runs"] = geometry_pictures.runs(places, data.name)
        spectra = {
            label: {place.step: place.geometry.spectrum for place in run if place.geometry}
            for label, run in places.items()
        }
        drawn |= draw_spectra(spectra, data.name)
    return facts, drawn, compared


def draw_spectra(spectra: "Mapping[str, Mapping[int, Spectrum]]", title: str) -> dict[str, dict[str, bytes]]:
    """The pictures of the runs' spectra over their steps; none without any."""
    from simcse_jax.evaluation import geometry_pictures

    if not any(spectra.values()):
        return {}
    return {"spectrum": geometry_pictures.spectrum(spectra, title), "terms": geometry_pictures.terms(spectra, title)}


def read_data(
    data: str, split: str, score: str | None, models: Mapping[str, ModelArgument], fit_on: str, dimensions: int
) -> GeometryData:
    """The graded pairs, the tasks of the score, and the sentences of each post-processing."""
    from simcse_jax.evaluation import geometry, postprocess, sts

    pairs = geometry.read(data, split)
    is_file = local_path(data).is_file()
    if is_file and score == "sts_avg":
        raise UserError(f"--score sts_avg: {data} is a file of pairs; give SentEval's data/downstream")
    tasks: dict[str, Pairs] = {}
    if models and not is_file and score != "stsb":
        tasks, _ = sts.read(data, TASKS)
    methods = sorted({model.postprocess for model in models.values()} - {""})
    return GeometryData(
        Path(data).name if is_file else f"STS-B {split}",
        pairs,
        tasks,
        {
            method: postprocess.read(method, fit_on, dimensions if method == "whitening" else 0, data)
            for method in methods
        },
    )


def score_title(data: GeometryData) -> str:
    """The meaning of the colours, with the number of averaged tasks if some are missing."""
    if not data.tasks:
        return f"Spearman × 100 on {data.name}"
    missing = [task for task in TASKS if task not in data.tasks]
    which = f" ({len(data.tasks)} of {len(TASKS)} tasks, without {', '.join(missing)})" if missing else ""
    return f"average STS, Spearman × 100{which}"


def measure_models(
    models: Mapping[str, ModelArgument], data: GeometryData, open_model: Open, measure: Measure, say: Say
) -> "tuple[dict[str, tuple[str, Geometry]], dict[str, float], dict[str, Any]]":
    """Measures each model and prints a line about it.

    Returns:
      The labels on the pictures and the measures, by what was given; the scores, and the facts to write, by label.
    """
    from simcse_jax.evaluation import postprocess, sts
    from simcse_jax.evaluation.evaluator import by_task

    names = short_names([model.name for model in models.values()])
    shown = [model.label or name + model.details for name, model in zip(names, models.values(), strict=True)]
    measures: dict[str, tuple[str, Geometry]] = {}
    scores: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for (spec, model), label in zip(models.items(), unique(shown, list(models)), strict=True):
        encoder, encode = open_model(model)
        with doing(label):
            embed = postprocess.transformed(encode, data.fit_on.get(model.postprocess))
            for_task = getattr(embed, "for_task", None)
            measured = measure(for_task(sts.DEVELOPMENT, data.pairs) if for_task else embed, label)
            results = by_task(sts.evaluate, embed, data.tasks) if data.tasks else {}
        correlations = {task: result["spearman"] for task, result in results.items()}
        measures[spec] = (label, measured)
        scores[label] = float(np.mean(list(correlations.values()))) if correlations else measured.spearman
        facts[label] = {"model": spec, "pooler": encoder.pooler, "postprocess": model.postprocess}
        facts[label] |= {"score": round(scores[label], 4), "sts": correlations, **measured.to_json()}
        average = f", {score_title(data)}: {scores[label]:.2f}" if correlations else ""
        say(line(label, measured) + average)
    return measures, scores, facts


def measure_runs(
    runs: Mapping[str, str], measure: Measure, batch_size: int, say: Say
) -> "tuple[dict[str, list[PlanePoint]], dict[str, Any]]":
    """Measures each kept checkpoint of each run: the places, and the facts to write, by the runs' labels."""
    from simcse_jax.evaluation.geometry_pictures import PlanePoint
    from simcse_jax.runs.dynamics import checkpoint_encoders

    places: dict[str, list[PlanePoint]] = {}
    facts = {}
    shown = [label or name for label, name in zip(runs.values(), short_names(list(runs)), strict=True)]
    for name, label in zip(runs, unique(shown, list(runs)), strict=True):
        places[label], checkpoints, names = [], [], []
        for kept in checkpoint_encoders(as_path(name), batch_size):
            names.append(f"{label}, step {kept.step}")
            with doing(names[-1]):
                measured = measure(kept.embed.with_progress, names[-1], kept.temperature)
            places[label].append(PlanePoint(kept.step, measured.alignment, measured.uniformity, measured))
            checkpoints.append({"step": kept.step, **measured.numbers()})
            say(line(names[-1], measured))
        for between in names[1:-1]:  # the report compares the ends
            del measure.embeddings[between]
        measure.changes.append((names[-1], names[0]))
        facts[label] = {"workdir": name, "checkpoints": checkpoints}
    return places, facts


def write(
    output: Path, result: dict[str, Any], drawn: Mapping[str, dict[str, bytes]], compared: dict[str, Any] | None
) -> list[str]:
    """Writes the numbers, the pictures and the report, all or none; returns their names."""
    from simcse_jax.evaluation import geometry_pictures
    from simcse_jax.evaluation.analysis import page, sentences

    numbers, parts = {FILE: result}, {"geometry": geometry_pictures.part(result, drawn)}
    if compared:
        numbers[sentences.SENTENCES] = compared
        parts["sentences"] = sentences.part(compared)
    page.write(output, numbers, drawn, parts)
    return [FILE, page.PAGE, *(f"{name}.png and .svg" for name in drawn)]


def line(label: str, measured: "Geometry") -> str:
    """The line that is printed about a model."""
    numbers = f"alignment {measured.alignment:.4f}, uniformity {measured.uniformity:.4f}"
    return f"{label}: {numbers}, Spearman × 100 {measured.spearman:.2f}"
