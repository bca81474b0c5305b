"""How runs changed while they trained: what they recorded, and what is measured on the checkpoints that they kept.

They record development scores and changes of the last layer, among them where a run is on SimCSE's plane of alignment
and uniformity, and its spectrum. Runs that differ in their seed, and in nothing else that changes training, are a
group; a figure shows its mean.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.config.fields import flatten
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis.last_layer import Sample, measure_last_layer
from simcse_jax.evaluation.analysis.spectrum import NUMBERS, Spectrum
from simcse_jax.evaluation.analysis.tokens import Protocol, Survey, check_same_tokens, survey
from simcse_jax.host.storage import Folder, sha256
from simcse_jax.huggingface.load import choose_pooler
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models import parameters, partial
from simcse_jax.models.head import has_head
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.registry import find_temperature
from simcse_jax.runs.loading import load_model, load_workdir, open_checkpoints
from simcse_jax.runs.run_files import FREE, SINGULAR_VALUES, read_modules
from simcse_jax.runs.state import add_parts, initial_params, model_spec, read_frozen, split_shapes, starting_adapter
from simcse_jax.runs.workdir import Workdir

Point = dict[str, float]  # `step`, and the measures
PLANE = ("alignment", "uniformity")
SEED_FOLDER = re.compile(r"seed\d+")  # of a sweep's run, in the folder of its row


def read_run(folder: Folder) -> dict[str, Any]:
    """The facts of a run's `run.json`.

    Returns:
      `fields`: all, by dotted names; `config`: those that change the trained model and its embeddings; `sha256`: of the
      contents of what it read, by field.
    """
    workdir = Workdir(folder)
    workdir.check_exists(f"--runs {folder}")
    run = workdir.read_run()
    fields = flatten(run["config"])
    kept = ("eval.pooler", "eval.encoder")  # they choose what is scored
    config = {name: value for name, value in fields.items() if name in kept or not name.startswith((*FREE, "eval."))}
    return {"fields": fields, "config": config, "sha256": run["sha256"]}


def survey_checkpoints(
    folders: Mapping[str, Folder], sentences: list[str], protocol: Protocol, where: str, batch_size: int
) -> tuple[Survey, int]:
    """Tokenizes the data once for all runs, before anything is measured.

    Returns:
      The survey of the data for all runs, and the number of tokens of a sentence that all runs read.
    """
    for folder in folders.values():
        kept_steps(folder)
    first = {name: next(checkpoint_encoders(folder, batch_size)) for name, folder in folders.items()}
    encoders = {name: kept.embed for name, kept in first.items()}
    max_length = min(encoder.max_length for encoder in encoders.values())
    cut = {name: dataclasses.replace(encoder, max_length=max_length) for name, encoder in encoders.items()}
    surveys = {name: survey(encoder, sentences, protocol, where) for name, encoder in cut.items()}
    check_same_tokens(surveys)
    return next(iter(surveys.values())), max_length


def measure_checkpoints(
    folder: Folder, surveyed: Survey, sample: Sample, max_length: int, batch_size: int
) -> Iterator[Point]:
    """Measures every kept checkpoint of a run, the earliest first, with progress on standard error."""
    for kept in checkpoint_encoders(folder, batch_size):
        encoder = dataclasses.replace(kept.embed, max_length=max_length)
        encode = kept.embed.with_progress
        measured = measure_last_layer(encode, encoder, surveyed, sample, kept.temperature, show_progress_bar=True)
        yield {"step": kept.step, **measured.analysis}


def read_measurements(
    folders: Mapping[str, Folder], runs: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, list[Point]], dict[str, Any], str]:
    """The measurements of `analysis.every` during training.

    Returns:
      The points by the runs' names, the protocol, and a name for the data.
    """
    points = {}
    for name, folder in folders.items():
        lines = [line for line in Workdir(folder).read_metrics() if "analysis" in line]
        points[name] = [{"step": line["step"], **line["analysis"]} for line in lines]
        if not lines:
            raise UserError(f"--runs {name}: nothing was measured while it trained (analysis.every); give --data")
    data = {run["sha256"].get("analysis.data"): name for name, run in runs.items()}
    if len(data) > 1:
        first, second, *_ = data.values()
        raise UserError(f"--runs {first} and {second} were not measured on the same sentences; give --data")
    fields = next(iter(runs.values()))["fields"]
    where = Path(fields["analysis.data"] or fields["eval.data"])
    count = f"at most {fields['analysis.sentences']}"
    about = {"source": "measured while it trained (analysis.every)", "sentences": count}
    return points, about, where.name if where.suffix else f"STS-B {fields['analysis.split']}"


class CheckpointEncoder(NamedTuple):
    """A run's model at a step."""

    step: int
    embed: Embedder  # with the run's pooler and, if it belongs to the model, its head
    temperature: float | None  # of the run's objective


def kept_steps(folder: Folder) -> list[int]:
    """The steps whose checkpoints a run has kept."""
    Workdir(folder).check_exists(f"--runs {folder}")
    saved = folder / "checkpoints"
    steps = sorted(int(path.name) for path in saved.iterdir() if path.name.isdigit()) if saved.is_dir() else []
    if len(steps) < 2:
        raise UserError(
            f"--runs {folder}: kept {len(steps)} checkpoints; train it with --config.checkpoint.keep_every=10, say, or "
            "leave out --data to draw what it recorded"
        )
    return steps


def checkpoint_encoders(folder: Folder, batch_size: int = 64) -> Iterator[CheckpointEncoder]:
    """The run's model at its start (step 0), if that can still be loaded, and at every kept checkpoint.

    All use the same compiled encoders.
    """
    model, run = load_workdir(folder), Workdir(folder).read_run()
    pooler, use_head = choose_pooler(model, None)
    tokenizer = Tokenizer(model.folder, model.config)
    config = dataclasses.replace(model.config, mask_token_id=tokenizer.mask_token_id)
    graph, _ = build(config, with_head=has_head(model.params))
    read = (graph, model.params, pooler, use_head, tokenizer, model.max_length, batch_size)
    embed = Embedder(*read, modules=model.config.modules)
    temperature = find_temperature(run["config"]["objective"])

    def make_encoder(step: int, params: Params) -> CheckpointEncoder:
        return CheckpointEncoder(step, embed.with_params({name: params[name] for name in model.params}), temperature)

    is_kept = (folder / "checkpoints" / "0").exists()
    if not is_kept and (start := starting_params(folder, run)) is not None:
        yield make_encoder(0, start)
    spec = model_spec(run["config"])
    shapes, of_frozen = split_shapes(model.config, spec)
    encoder, frozen = add_parts(model.config, spec), read_frozen(model.folder, run, of_frozen)
    with open_checkpoints(folder) as checkpoints:
        for step in kept_steps(folder):
            trained = checkpoints.restore_params(step, shapes)
            params = partial.merged(partial.whole(trained, frozen), encoder)
            yield make_encoder(step, parameters.sentence_encoder(params, checkpoints.tower(step)))


def starting_params(folder: Folder, run: dict[str, Any]) -> Params | None:
    """The run's initial parameters, with the same fresh head; None with a message if those weights are not found."""
    # Only the first encoder and its head make embeddings.
    spec = dataclasses.replace(model_spec(run["config"]), dual_encoder=False, projector=None, objectives={})
    try:
        model = load_model(spec.init_from, spec.num_layers)
        model = model if read_modules(run) else model.without_modules()
        model = dataclasses.replace(model, template=spec.template)
        adapter = starting_adapter(spec, model)
    except UserError as error:
        print(f"{folder}: step 0 is left out: {error}", flush=True)
        return None
    weights = sha256(*(np.asarray(model.params[part]) for part in sorted(model.params)))
    lora = sha256(*adapter.values()) if spec.lora and adapter else run["sha256"].get("model.lora.init_from")
    if (weights, lora) != (run["sha256"]["model.init_from"], run["sha256"].get("model.lora.init_from")):
        changed = spec.init_from if weights != run["sha256"]["model.init_from"] else "the adapter"
        print(f"{folder}: step 0 is left out: {changed} has other weights than the run started from", flush=True)
        return None
    return partial.merged(initial_params(spec, model, adapter), add_parts(model.config, spec))


class Records(NamedTuple):
    """The records of runs, by their names; a run without records of a kind is missing there."""

    groups: dict[str, list[str]]  # the names of the runs of each group, by the first one's
    scores: dict[str, dict[int, float]]  # of the development pairs, by step
    scored_on: str  # the name of these pairs
    plane: dict[str, dict[int, dict[str, float]]]  # alignment and uniformity, by step
    spectra: dict[str, dict[int, Spectrum]]  # by step
    measured_on: str  # the name of the sentences


def read_records(folders: Mapping[str, Folder], labels: Mapping[str, str]) -> Records:
    """Reads the records of runs.

    `labels`: those that the user gave, by the runs' names; empty for none. Runs of a group have the same.
    """
    runs = {name: read_run(folder) for name, folder in folders.items()}
    lines = {name: Workdir(folder).read_metrics() for name, folder in folders.items()}
    scores: dict[str, dict[int, float]] = {}
    judged: dict[tuple[str, ...], str] = {}  # the first run that was scored on each development set
    for name in folders:
        for line in lines[name]:
            for task in (key.removeprefix("eval/") for key in line if key.startswith("eval/")):
                scores.setdefault(name, {})[line["step"]] = float(line[f"eval/{task}"])
                data = (runs[name]["sha256"].get(field, "") for field in ("eval.data", "eval.retrieval.data"))
                judged.setdefault((task, *data), name)
    if len(judged) > 1:
        first, second, *_ = judged.values()
        raise UserError(f"--runs {first} and {second} were scored on different data; draw them separately")
    measured = {name: folders[name] for name in folders if any("analysis" in line for line in lines[name])}
    points: dict[str, list[Point]] = {}
    measured_on = ""
    if measured:
        points, _, measured_on = read_measurements(measured, {name: runs[name] for name in measured})
    plane = {
        name: {int(point["step"]): {field: point[field] for field in PLANE} for point in of_run}
        for name, of_run in points.items()
        if all(field in point for point in of_run for field in PLANE)
    }
    spectra = {name: spectra_of_run for name in points if (spectra_of_run := _spectra(lines[name]))}
    if silent := [name for name in folders if name not in {*scores, *plane, *spectra}]:
        raise UserError(
            f"--runs {silent[0]}: nothing was recorded while it trained: no scores (eval.data), and no measures "
            "(--config.analysis.every=10); give --data to measure the checkpoints that it kept"
        )
    scored_on = next(iter(judged), ("",))[0]
    return Records(_groups(runs, labels), scores, scored_on, plane, spectra, measured_on)


def folder_name(name: str) -> str:
    """A run's name for a picture: that of a sweep's run without the folder of its seed."""
    path = PurePosixPath(name.rstrip("/"))
    return str(path.parent) if SEED_FOLDER.fullmatch(path.name) and path.parent.name else name


def _spectra(lines: Iterable[dict[str, Any]]) -> dict[int, Spectrum]:
    spectra = {}
    for line in lines:
        if line.get(SINGULAR_VALUES) and "analysis" in line:
            numbers = {name: line["analysis"][name] for name in NUMBERS if name in line["analysis"]}
            spectra[line["step"]] = Spectrum(numbers, np.array(line[SINGULAR_VALUES]))
    return spectra


def _groups(runs: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Groups by label, model and config without the seed, in the order of their first runs.

    A seed that a group has already is in another one: rows of a sweep that differ in their post-processing alone are
    the same runs, not more seeds.
    """
    groups: dict[str, list[str]] = {}
    firsts: dict[tuple[str, int], str] = {}
    times: Counter[str] = Counter()
    for name, run in runs.items():
        start = labels[name], run["sha256"].get("model.init_from")
        with_seed = repr((start, sorted(run["config"].items())))
        without_seed = repr((start, sorted((run["config"] | {"seed": None}).items())))
        first = firsts.setdefault((without_seed, times[with_seed]), name)
        times[with_seed] += 1
        groups.setdefault(first, []).append(name)
    return groups
