"""All systems: those that train on sentences alone, side by side, from one start, one epoch of 9,600 sentences.

Each row has the fields of its recipe in `configs/`, except for those that the epoch's size decides: the learning rate,
the interval of scoring (three times, each a third of the epoch), and the milestones of contrastive tension, which are
scaled to its 600 steps. Batches have each system's own shape, so the steps of the rows differ. The model, the data and
what is scored are given on the command line, as in `benchmarks/tables.sh`; `docs/results/` has what came out.

`systems` has the rates that were best for the small language model there, `systems:grid` each system at three rates.
They say nothing about BERT-base: for that, the recipes have their authors' rates.

DeCLUTR needs documents, DiffCSE a generator: `data/documents.txt`, the same sentences one a line, with a blank line
wherever 512 words have come together; and `data/generator`, a masked language model with the encoder's tokens. An
anchor of DeCLUTR stands for half a document; since 32 anchors a step leave 19 steps, a second row has 8, as the
released code has on one GPU.
"""

import math
from typing import Any

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.configs import consert, ct, declutr, diffcse, is_bert, scd, simcse_plus_plus
from simcse_jax.evaluation.tasks import TASKS
from simcse_jax.sweeps.variants import Variant, as_recipe, sweep_defaults

SENTENCES, LINES = 9600, 30  # of the epoch; of a document, about
GIVEN = ("model.init_from", "data.train", "train.epochs", "train.max_steps")  # on the command line
RATES = (1e-5, 3e-5, 1e-4)
CT = {"train.milestones": "60:0.8,120:0.6,180:0.4,240:0.2"}  # a tenth, two, three and four tenths of its steps
DOCUMENTS, GENERATOR = {"data.train": "data/documents.txt"}, {"model.generator": "data/generator"}
SYSTEMS: dict[str, tuple[config_dict.ConfigDict, dict[str, Any], float]] = {  # recipe, other fields, the best rate
    "SimCSE": (default_config(), {}, 3e-5),
    "SimCSE++": (simcse_plus_plus.get_config(), {}, 3e-5),
    "CT": (ct.get_config(), CT, 3e-5),
    "CT (released)": (ct.get_config("released"), CT, 3e-5),
    "ConSERT": (consert.get_config(), {}, 3e-5),
    "SCD": (scd.get_config(), {}, 3e-5),
    "IS-BERT": (is_bert.get_config(), {}, 3e-5),
    "DeCLUTR": (declutr.get_config("short"), DOCUMENTS, 3e-5),
    "DeCLUTR (8 anchors)": (declutr.get_config("short"), DOCUMENTS | {"train.batch_size": 8}, 3e-5),
    "DiffCSE": (diffcse.get_config(), GENERATOR, 3e-5),
    "DiffCSE + SimCSE++": (diffcse.get_config("simcse_plus_plus"), GENERATOR, 3e-5),
}
SETTINGS = {"best": "SimCSE", "grid": "SimCSE at 3e-05"}


def get_config(setting: str = "best") -> config_dict.ConfigDict:
    """Unsupervised SimCSE, one epoch."""
    baseline = choose_variant(setting, SETTINGS)
    config = default_config()
    columns = ("stsb_dev",)
    if setting == "best":
        columns += (*TASKS, "sts_avg", "alignment", "uniformity", "anisotropy", "steps", "training_minutes")
    config.sweep = sweep_defaults("Systems trained on sentences alone", "All systems", columns, baseline)
    return config


def get_variants(setting: str = "best") -> tuple[Variant, ...]:
    """The systems, at one rate or at three."""
    base, rows = get_config(setting), []
    for name, (recipe, others, best) in SYSTEMS.items():
        fields = {key: value for key, value in as_recipe(recipe, base).items() if key not in GIVEN} | others
        batch = fields.get("train.batch_size", base.train.batch_size)
        if recipe.data.positives == "spans":
            batch = batch // recipe.data.spans.anchors * LINES
        third = math.ceil(SENTENCES / batch / 3)
        fields |= {"eval.every": third, "analysis.every": third if setting == "best" else 0}
        named = {name: best} if setting == "best" else {f"{name} at {rate:.0e}": rate for rate in RATES}
        rows += [Variant(title, fields | {"train.learning_rate": rate}) for title, rate in named.items()]
    return tuple(rows)
