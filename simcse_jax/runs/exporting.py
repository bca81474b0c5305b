"""Exports: a run's model, or another one, as a folder for transformers and sentence-transformers."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors import SafetensorError

from simcse_jax.encoding.arguments import check_truncation
from simcse_jax.errors import UserError
from simcse_jax.host.locks import replacing
from simcse_jax.host.names import split_step
from simcse_jax.host.outputs import check_replaced_folder
from simcse_jax.host.storage import Folder, as_path, is_of_macos, is_remote
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import MARKER
from simcse_jax.huggingface.write import write_model
from simcse_jax.runs.loading import load_workdir, scored_pooler, trained_config, unscored_step
from simcse_jax.runs.lora_export import adapter_writer
from simcse_jax.runs.model_card import front_matter, model_card, read_front_matter, read_license
from simcse_jax.runs.workdir import Workdir

PARTS = ("model", "checkpoints", "tensorboard")  # folders of a run


def check_places(workdir: Folder, output: Path) -> None:
    """Refuses folders that cannot be exported from or to."""
    Workdir(workdir).check_exists(f"--workdir {workdir}")
    check_output(output, None if is_remote(workdir) else Path(workdir))


def check_output(output: Path, source: Path | None) -> None:
    """Refuses a folder that exists and is not an earlier export, or is a part of a run, such as of the `source`."""
    if output.name in PARTS and Workdir(output.absolute().parent).exists:
        raise UserError(f"--output {output}: is a part of a run; choose another")
    check_replaced_folder(output, source, PARTS)
    if output.exists() and not (
        output.is_dir() and ((output / MARKER).is_file() or all(is_of_macos(path.name) for path in output.iterdir()))
    ):
        raise UserError(f"--output {output}: exists and is not an earlier export; remove it or choose another folder")


def export(
    workdir: Folder,
    output: Path,
    hub_name: str | None = None,
    revision: str | None = None,
    fields: Mapping[str, Any] = MappingProxyType({}),
    step: int | str | None = None,
    truncate_dim: int | None = None,
) -> None:
    """Writes a checkpoint of `workdir` and its card to the folder `output`, whole or not at all.

    A language-model head comes along.

    Args:
      workdir: a run's folder.
      output: a new folder, an empty one, or that of an earlier export, which is replaced.
      hub_name: OWNER/NAME, the name in the model card's code; None for the folder's own name.
      revision: the branch there, None for the main one.
      fields: of the card's front matter, from `card_fields`; others are those that the run knows.
      step: of the checkpoint, or "last"; None for the best one.
      truncate_dim: the elements that the model's embeddings keep, by its settings; None for all.

    Raises:
      UserError: when there is no run or checkpoint, `truncate_dim` is more than its embeddings have, `output` is not
        an earlier export, or another job exports there.
    """
    check_places(workdir, output)
    model = load_workdir(workdir, step=step)
    if truncate_dim is not None:
        check_truncation(truncate_dim, model.config.sentence_size, "--truncate-dim")
        model = dataclasses.replace(model, settings=model.settings._replace(truncate_dim=truncate_dim))
    save(model, output, hub_name, revision, fields)


def save(
    model: Pretrained,
    output: Path,
    hub_name: str | None = None,
    revision: str | None = None,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Writes a model that a program has changed, such as its prompts, with the card of the run that it comes from.

    Args:
      model: its name may be that of a run.
      output, hub_name, revision, fields: as for `export`.

    Raises:
      UserError: as `export`; also for fields of a model that is not a run's, which gets no card.
    """
    folder, step = _find_run(model)
    if folder is None:
        if fields:
            raise UserError(f"{next(iter(fields))}: is for the card of a run's model, and {model.name} is not a run")
        check_output(output, None)
        if output.exists() and output.resolve() == model.folder.resolve():
            raise UserError(f"--output {output}: is the model's own folder; choose another")
        return write(model, output)
    check_places(folder, output)
    workdir = Workdir(folder)
    run, named = workdir.read_run(), hub_name or output.resolve().name
    as_trained = (model.pooler, model.has_head, model.config) == (*scored_pooler(run), trained_config(folder, run))
    scores = workdir.read_result() if as_trained else None
    card = model_card(model, run, scores, named, revision, fields, unscored_step(folder, step))
    write(model, output, card)


def write(model: Pretrained, output: Path, card: str = "") -> None:
    """Writes a model and its card, if it has one, to a folder; see `write_whole`.

    Raises:
      UserError: when it is not finite, or another job writes there.
    """
    for name, values in {**model.params, **(model.language_model or {})}.items():
        if not np.isfinite(values).all():
            raise UserError(f"{model.name}: {name} is not finite; it is not exported")

    def fill(folder: Path) -> None:
        write_model(model, folder)
        if card:
            (folder / "README.md").write_text(card, encoding="utf-8")

    write_whole(output, fill)


def card_front_matter(model: Pretrained) -> dict[str, Any]:
    """The front matter of a model's card; for a run's model, that of its export's card."""
    folder, _ = _find_run(model)
    if folder is None:
        return read_front_matter(model.folder / "README.md")
    run = Workdir(folder).read_run()
    return front_matter(run, None, "", read_license(run["config"]["model"]["init_from"])).to_dict()


def _find_run(model: Pretrained) -> tuple[Folder | None, int | str | None]:
    """The workdir that a model comes from, or None, and the step in its name."""
    name, step = split_step(model.name)
    folder = None if re.match(r"\w+:", name) and not is_remote(name) else as_path(name)
    return (folder if folder is not None and Workdir(folder).exists else None), step


def export_adapter(workdir: Folder, output: Path, step: int | str | None = None) -> None:
    """Writes the LoRA of a checkpoint of `workdir` to the folder `output`; the rest as `export`."""
    check_places(workdir, output)
    write_whole(output, adapter_writer(workdir, step))


def write_whole(output: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a new folder, which then takes the place of `output`."""
    output = Path(os.path.realpath(output))  # a link stays; its target is replaced
    try:
        with replacing(output) as temporary:
            write(temporary)
    except (OSError, SafetensorError) as error:
        raise UserError(f"--output {output}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
