"""Loads any model by name: whatever `huggingface.load` reads, and the workdirs of our runs."""

import atexit
import contextlib
import dataclasses
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simcse_jax.devices.backend import keep_compilations
from simcse_jax.errors import UserError
from simcse_jax.host.names import LAST, AtStep, split_glove, split_step
from simcse_jax.host.storage import Folder, as_path, check_readable, is_remote, read_json
from simcse_jax.huggingface.load import ChosenPooler, Pretrained, load
from simcse_jax.huggingface.sentence_transformers import NO_PROMPTS, Settings
from simcse_jax.huggingface.tokenizer import WORDS_FILE
from simcse_jax.huggingface.word_vectors import read_vocabulary
from simcse_jax.models import partial
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import PREFIX
from simcse_jax.models.model_types import WORD_VECTORS
from simcse_jax.models.parameters import LANGUAGE_MODEL, sentence_encoder, subset
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.run_files import KEPT, read_modules
from simcse_jax.runs.state import add_parts, model_spec, read_frozen, split_shapes
from simcse_jax.runs.workdir import Workdir

if TYPE_CHECKING:
    from simcse_jax.runs.checkpoints import Checkpoints


def load_model(name: str, num_layers: int = 0) -> Pretrained:
    """Loads a folder, a hub id, `package:NAME`, `glove:FILE` or a workdir (`gs://…` too).

    A workdir is its best checkpoint; WORKDIR@step=200 is that of step 200, WORKDIR@step=last the latest one.
    `num_layers` keeps the first layers only; 0 keeps all.
    """
    if not name.strip():
        raise UserError("the name of the model is empty; give a folder, a hub id, package:NAME or a workdir")
    keep_compilations()  # a model is loaded to compile programs for it: training, scoring, encoding
    run, step = split_step(name)
    if split_glove(run) is None and not re.match(r"\w+:[^/]", run):  # package:NAME
        folder = as_path(run)
        workdir = Workdir(folder)
        if is_remote(folder):
            workdir.check_exists(name)
        else:
            check_readable(Path(folder))
        if workdir.exists:
            return load_workdir(folder, num_layers, step)
    if step is not None:
        raise UserError(f"{name}: {run} is not a run's folder, so it has no checkpoints")
    return load(name, num_layers)


def load_workdir(folder: Folder, num_layers: int = 0, step: int | str | None = None) -> Pretrained:
    """Loads a run's checkpoint: the encoder with its head, and the language model if there is one.

    Of two encoders it loads the first one, that of the anchors, unless the run scored both (`eval.encoder`) and the
    second one was better at this step.

    `step`: of the checkpoint; `LAST`: the latest one; None: the best one.
    """
    workdir = Workdir(folder)
    run = workdir.read_run()
    spec, max_length = model_spec(run["config"]), run["model"]["max_length"]
    (pooler, has_head), config = scored_pooler(run), trained_config(folder, run)
    shapes, of_frozen = split_shapes(config, spec)
    with open_checkpoints(folder) as checkpoints:
        chosen = choose_step(checkpoints, workdir, step)
        trained, tower = checkpoints.restore_params(chosen, shapes), checkpoints.tower(chosen)
    copy = _local_copy(folder / "model")
    trained = partial.merged(partial.whole(trained, read_frozen(copy, run, of_frozen)), add_parts(config, spec))
    language_model = {name: np.asarray(value) for name, value in subset(trained, LANGUAGE_MODEL).items()} or None
    weights = sentence_encoder(trained, tower)
    params = {name: np.asarray(value) for name, value in weights.items() if has_head or not name.startswith(PREFIX)}
    kept = config.keep_layers(num_layers)
    if kept != config:
        _, shapes = build(kept, with_head=has_head)
        params = {name: params[name] for name in shapes}
    vocabulary = read_vocabulary(copy / WORDS_FILE) if kept.model_type == WORD_VECTORS else None
    if vocabulary and len(vocabulary.words) != kept.vocab_size:
        words = len(vocabulary.words)
        raise UserError(f"{copy / WORDS_FILE}: damaged: it has {words} words, the checkpoint {kept.vocab_size}")
    name = str(AtStep(str(folder), step))
    stated = dict(run["model"].get(KEPT, {}))
    normalize = stated.pop("normalize", False)
    settings = Settings(NO_PROMPTS | run["model"].get("prompts", {}), **stated)
    parts = (name, copy, kept, params, pooler, max_length, language_model, normalize)
    return Pretrained(*parts, settings=settings, vocabulary=vocabulary)


def scored_pooler(run: Mapping[str, Any]) -> ChosenPooler:
    """The pooler of a run's model, and whether a head comes after it; `run` are the contents of `run.json`."""
    spec = model_spec(run["config"])
    return ChosenPooler(spec.scored_pooler, spec.head.scored)


def trained_config(folder: Folder, run: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a run's model."""
    where, spec = folder / "model" / "config.json", model_spec(run["config"])
    config = EncoderConfig.from_hugging_face(read_json(where), str(where))
    config = dataclasses.replace(config, attention_kernels=spec.attention_kernels, convolutions=spec.convolutions)
    return dataclasses.replace(config, modules=read_modules(run))


def unscored_step(folder: Folder, step: int | str | None) -> int | None:
    """The number of a run's checkpoint if it is not the one that has the run's scores; None if it is.

    That is the best one, unless `result.json` names another.
    """
    with open_checkpoints(folder) as checkpoints:
        workdir = Workdir(folder)
        chosen, scored = choose_step(checkpoints, workdir, step), workdir.scored_step()
        return None if chosen == (checkpoints.best if scored is None else scored) else chosen


def open_checkpoints(folder: Folder) -> contextlib.closing["Checkpoints"]:
    """A run's checkpoints, to read from. Orbax takes a quarter of a second to import; other models do without."""
    from simcse_jax.runs.checkpoints import Checkpoints

    return contextlib.closing(Checkpoints(folder, read_only=True))


def choose_step(checkpoints: "Checkpoints", workdir: Workdir, step: int | str | None) -> int:
    """The step of the checkpoint to load; the arguments are those of `load_workdir`."""
    steps, best = checkpoints.steps, checkpoints.best
    if best is None:
        raise UserError(f"{workdir}: no checkpoint has been saved yet")
    if step is None:
        kept = workdir.scored_step()  # the start, if the best one is no better
        return kept if kept in steps else best
    chosen = steps[-1] if step == LAST else step
    if chosen not in steps:
        listed = ", ".join(f"{number} (the best one)" if number == best else str(number) for number in steps)
        raise UserError(f"{workdir}: has no checkpoint of step {step}; it has {listed}")
    return int(chosen)


def _local_copy(folder: Folder) -> Path:
    """The folder itself if it is on a disk; otherwise a copy until the process ends, since tokenizers read files."""
    if not is_remote(folder):
        return folder
    temporary = Path(tempfile.mkdtemp(prefix="simcse_jax."))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    for file in folder.iterdir():
        (temporary / file.name).write_bytes(file.read_bytes())
    return temporary
