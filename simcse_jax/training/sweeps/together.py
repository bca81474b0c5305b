"""Runs that differ only in numbers and seeds, trained together in one program: `jax.vmap` over whole runs."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simcse_jax.config.fields import fields_of, flatten, numbers_of_step, trains
from simcse_jax.config.sections import Section
from simcse_jax.config.source_fields import ONE_SOURCE
from simcse_jax.errors import UserError
from simcse_jax.field import read_milestones
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.run import train_all

# Numbers of which something is part of the program: which terms there are, how many milestones, whether positives,
# attention and LoRA have rates of their own, and whether attention's draws masks.
COMPILED = {
    "train.milestones": lambda text: len(read_milestones(text)),
    "views.positive_dropout": lambda rate: rate >= 0,
    "model.attention_dropout": lambda rate: float(np.sign(rate)),
    "model.lora.dropout": lambda rate: rate > 0,
}


def draws_data(config: Section) -> bool:
    """Whether the training data are other ones with another seed."""
    data = config.data
    drawn = data.augment.name or data.subsample or data.held_out
    return bool(drawn or data.positives in ("next_3_sentences", "spans"))


def group_key(config: Section) -> str | None:
    """Runs of the same key can be trained together; None: only alone, since its data depends on its seed.

    A run that trains nothing, keeps checkpoints, is analyzed during training, scores two encoders or has batches of one
    source each is alone too.
    """
    data = config.data
    of_one_source = data.batching == ONE_SOURCE and "," in data.train  # a step's source depends on the seed
    looked_at = config.checkpoint.keep_every or config.analysis.every or config.eval.encoder == "better"
    if looked_at or of_one_source or not trains(config) or draws_data(config):
        return None
    fields = flatten(config)
    for name in numbers_of_step(fields_of(config)):
        value = fields.pop(name)
        if name.endswith(".weight"):
            fields[name] = value > 0
        elif name in COMPILED:
            fields[name] = COMPILED[name](value)
    return json.dumps(sorted(fields.items()), default=str)


def train_together(configs: Sequence[Section], workdirs: Sequence[Path], folder: Path) -> list[str]:
    """Trains R runs of one `group_key` in one compiled step, each as it would be alone, to the rounding of sums.

    Writes each one's `run.json`, `metrics.jsonl` and `result.json`. There are no checkpoints of single runs: a run that
    is worth keeping is trained again alone.

    Args:
      configs: R configs.
      workdirs: as many folders.
      folder: for the group's checkpoints, which are resumed from, and removed when all is done.

    Returns:
      A line for each run that was given up, since its loss or its embeddings were not finite.

    Raises:
      UserError: in the cases of train_and_evaluate.
    """
    if configs[0].eval.against_start:
        raise UserError("config.eval.against_start: runs trained together keep no start; set sweep.vectorize=False")
    if not all(Workdir(workdir).exists for workdir in workdirs):  # one is to be run again, perhaps on other data
        shutil.rmtree(folder, ignore_errors=True)
    runs = train_all(configs, workdirs, folder)
    shutil.rmtree(folder, ignore_errors=True)
    return [f"{run.name}: {run.problem}" for run in runs if run.problem]
