"""`python -m simcse_jax.analyze --runs A B C`: how the last layer changed while runs trained."""

import dataclasses
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import config_dict

from simcse_jax.analysis import dynamics, last_layer, tokens
from simcse_jax.analysis.protocol import Protocol
from simcse_jax.config.fields import default_config, flatten
from simcse_jax.errors import UserError
from simcse_jax.runs.kept import checkpoint_encoders, steps_of
from simcse_jax.runs.metrics import read_metrics
from simcse_jax.runs.workdir import FREE, is_workdir, resolved, versions
from simcse_jax.storage import Folder, as_path, output_folder, read_json

if TYPE_CHECKING:
    from simcse_jax.analyze import Data

Point = dict[str, float]  # `step`, and the measures


def analyze_runs(args: Namespace, protocol: Protocol, data: "Data | None") -> None:
    """Measures the runs' kept checkpoints on the data or, without data, takes what was measured in training; draws it.

    Raises:
      UserError: naming the run that has nothing to measure or was measured on other sentences.
    """
    folders = {name: as_path(name) for name in args.runs}
    runs = {name: read_run(folder) for name, folder in folders.items()}
    labels = dict(zip(runs, dynamics.labels({name: run["config"] for name, run in runs.items()}), strict=True))
    if data:
        points, about = measure_checkpoints(folders, labels, protocol, data, args)
        where = data.name
    else:
        points, about, where = recorded(folders, runs)
    output = output_folder(args.output)
    named = {labels[name]: found for name, found in points.items()}
    workdirs = {label: name for name, label in labels.items()}
    names = dynamics.write(named, output, data=where, about=about, workdirs=workdirs, versions=versions())
    pictures = sum(name.endswith(".png") for name in names)
    print(f"{output}: {names[0]}, {names[-1]} and {pictures} pictures (PNG, SVG and their numbers in JSON)")


def read_run(folder: Folder) -> dict[str, Any]:
    """A run's `run.json`, of its config the fields that change what is trained, by their dotted names.

    Raises:
      UserError: when it is no run's folder, or the file is damaged.
    """
    if not is_workdir(folder):
        raise UserError(f"--runs {folder}: no run.json there, so it is no run's folder")
    path = folder / "run.json"
    run = read_json(path)
    try:
        fields = flatten(config_dict.ConfigDict(resolved(default_config())))  # of fields that its version did not know
        fields |= flatten(config_dict.ConfigDict(run["config"]))
        analysis = {name: fields[f"analysis.{name}"] for name in ("data", "sentences")}
        analysis |= {"eval.data": fields["eval.data"], "sha256": run["sha256"].get("analysis.data")}
    except (AttributeError, KeyError, TypeError):
        raise UserError(f"{path}: damaged; it does not say what was trained") from None
    config = {name: value for name, value in fields.items() if not name.startswith((*FREE, "eval."))}
    return {"config": config, "analysis": analysis}


def measure_checkpoints(
    folders: dict[str, Folder], labels: dict[str, str], protocol: Protocol, data: "Data", args: Namespace
) -> tuple[dict[str, list[Point]], dict[str, Any]]:
    """Measures every kept checkpoint of every run.

    Returns:
      The points by the runs' names, and how they were measured.

    Raises:
      UserError: when a run kept no checkpoints, or the runs' tokenizers differ.
    """
    for folder in folders.values():
        steps_of(folder)
    first = {name: next(checkpoint_encoders(folder, args.batch_size)) for name, folder in folders.items()}
    encoders = {name: kept.embed.tokens for name, kept in first.items()}
    max_length = min(encoder.max_length for encoder in encoders.values())
    encoders = {name: dataclasses.replace(encoder, max_length=max_length) for name, encoder in encoders.items()}
    surveys = {name: tokens.survey(encoder, data.sentences, protocol, args.data) for name, encoder in encoders.items()}
    tokens.check_same_tokens(surveys)
    output_folder(args.output)
    survey = next(iter(surveys.values()))
    positives = last_layer.positives(data.pairs, len(data.sentences)) if data.pairs else []
    sample = last_layer.Sample(survey.sentences, positives)
    print(f"{data.name}: {len(survey.sentences):,} sentences, {survey.units.sum():,} tokens", flush=True)
    points: dict[str, list[Point]] = {}
    for name, folder in folders.items():
        points[name] = []
        for kept in checkpoint_encoders(folder, args.batch_size):
            encoder = dataclasses.replace(kept.embed.tokens, max_length=max_length)
            found = last_layer.measure_last_layer(kept.embed, encoder, survey, sample)
            points[name].append({"step": kept.step, **found})
            numbers = ", ".join(f"{field} {value:.4f}" for field, value in found.items() if field in dynamics.FIELDS)
            print(f"{labels[name]}, step {kept.step}: {numbers}".replace("_", " "), flush=True)
    about = {"source": "kept checkpoints", "sentences": len(survey.sentences), "tokens": int(survey.units.sum())}
    about |= {"pairs_of_alignment": len(positives)}
    return points, about | dataclasses.asdict(protocol) | {"max_length": max_length}


def recorded(
    folders: dict[str, Folder], runs: dict[str, dict[str, Any]]
) -> tuple[dict[str, list[Point]], dict[str, Any], str]:
    """What `analysis.every` measured while the runs trained.

    Returns:
      The points by the runs' names, how they were measured, and what to call the data.

    Raises:
      UserError: when a run has none, or not all were measured on the same sentences.
    """
    points = {}
    for name, folder in folders.items():
        points[name] = [
            {"step": line["step"], **line["analysis"]} for line in read_metrics(folder) if "analysis" in line
        ]
        if not points[name]:
            raise UserError(
                f"--runs {name}: nothing was measured while it trained; train it with --config.analysis.every=10, say, "
                "or give --data to measure the checkpoints that it kept"
            )
    (first, one), *others = ((name, run["analysis"]) for name, run in runs.items())
    for name, other in others:
        keys = ["sha256"] if one["sha256"] and other["sha256"] else ["data", "sentences", "eval.data"]
        if any(one[key] != other[key] for key in keys):
            raise UserError(
                f"--runs {first} and {name} were not measured on the same sentences while they trained; "
                "give --data to measure the checkpoints that they kept"
            )
    where = Path(one["data"] or one["eval.data"])
    about = {"source": "measured while it trained (analysis.every)", "sentences": f"at most {one['sentences']}"}
    return points, about, where.name if where.suffix else "STS-B dev"
