"""Changes of the last layer during a run: as the run recorded them, or measured on its kept checkpoints."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import config_dict

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis.last_layer import Sample, measure_last_layer
from simcse_jax.evaluation.analysis.tokens import Protocol, Survey, check_same_tokens, survey
from simcse_jax.host.storage import Folder
from simcse_jax.runs.kept import checkpoint_encoders, steps_of
from simcse_jax.runs.workdir import FREE, Workdir, resolved

MEASURED = ("data", "sentences", "split", "repeated_sentences")  # the fields of `analysis` that choose the sentences
Point = dict[str, float]  # `step`, and the measures


def read_run(folder: Folder) -> dict[str, Any]:
    """The facts of a run's `run.json`.

    Returns:
      `config`: the fields that change the trained model and its embeddings, by dotted names; `analysis`: the data that
      it measured; `sha256`: of the contents of what it read, by field.
    """
    workdir = Workdir(folder)
    workdir.check_exists(f"--runs {folder}")
    run = workdir.read_run()
    fields = flatten(config_dict.ConfigDict(resolved(default_config())))  # for fields that its version did not have
    fields |= flatten(config_dict.ConfigDict(run["config"]))
    analysis = {name: fields[f"analysis.{name}"] for name in MEASURED}
    analysis |= {"eval.data": fields["eval.data"], "sha256": run["sha256"].get("analysis.data")}
    kept = ("eval.pooler", "eval.encoder")  # they choose what is scored
    config = {name: value for name, value in fields.items() if name in kept or not name.startswith((*FREE, "eval."))}
    return {"config": config, "analysis": analysis, "sha256": run["sha256"]}


def survey_checkpoints(
    folders: Mapping[str, Folder], sentences: list[str], protocol: Protocol, where: str, batch_size: int
) -> tuple[Survey, int]:
    """Tokenizes the data once for all runs, before anything is measured.

    Returns:
      The survey of the data for all runs, and the number of tokens of a sentence that all runs read.
    """
    for folder in folders.values():
        steps_of(folder)
    first = {name: next(checkpoint_encoders(folder, batch_size)) for name, folder in folders.items()}
    encoders = {name: kept.embed.tokens for name, kept in first.items()}
    max_length = min(encoder.max_length for encoder in encoders.values())
    encoders = {name: dataclasses.replace(encoder, max_length=max_length) for name, encoder in encoders.items()}
    surveys = {name: survey(encoder, sentences, protocol, where) for name, encoder in encoders.items()}
    check_same_tokens(surveys)
    return next(iter(surveys.values())), max_length


def measure_checkpoints(
    folder: Folder, surveyed: Survey, sample: Sample, max_length: int, batch_size: int
) -> Iterator[Point]:
    """Measures every kept checkpoint of a run, the earliest first, with progress on standard error."""
    for kept in checkpoint_encoders(folder, batch_size):
        encoder = dataclasses.replace(kept.embed.tokens, max_length=max_length)
        encode = kept.embed.with_progress
        numbers = measure_last_layer(encode, encoder, surveyed, sample, show_progress_bar=True)
        yield {"step": kept.step, **numbers}


def recorded(
    folders: Mapping[str, Folder], runs: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, list[Point]], dict[str, Any], str]:
    """The measurements of `analysis.every` during training.

    Returns:
      The points by the runs' names, the protocol, and a name for the data.
    """
    points = {}
    for name, folder in folders.items():
        points[name] = [
            {"step": line["step"], **line["analysis"]} for line in Workdir(folder).read_metrics() if "analysis" in line
        ]
        if not points[name]:
            raise UserError(
                f"--runs {name}: nothing was measured while it trained; train it with --config.analysis.every=10, say, "
                "or give --data to measure the checkpoints that it kept"
            )
    (first, one), *others = ((name, run["analysis"]) for name, run in runs.items())
    for name, other in others:
        keys = ["sha256"] if one["sha256"] and other["sha256"] else [*MEASURED, "eval.data"]
        if any(one[key] != other[key] for key in keys):
            raise UserError(
                f"--runs {first} and {name} were not measured on the same sentences while they trained; "
                "give --data to measure the checkpoints that they kept"
            )
    where = Path(one["data"] or one["eval.data"])
    about = {"source": "measured while it trained (analysis.every)", "sentences": f"at most {one['sentences']}"}
    return points, about, where.name if where.suffix else f"STS-B {one['split']}"
