"""All systems: those that train on sentences alone, side by side, from one start, one epoch of 9,600 sentences.

Each row has the fields of its recipe in `configs/`, except for those that the epoch's size decides: the learning rate,
the interval of scoring (three times, each a third of the epoch), and the milestones of contrastive tension, which are
scaled to its 600 steps. Batches have each system's own shape, so the steps of the rows differ. The model, the data and
what is scored are given on the command line, as in `benchmarks/tables.sh`; results are in `docs/background/results/`.

Each system has four learning rates, since those of its authors are for longer runs of larger models: train rows with
one seed until the best rate of each on STS-B dev lies between two others, then the best row of each with more seeds
(`sweep.only`, `sweep.seeds`); a sweep keeps what it has. So STS-B dev flatters each row, and the table marks it there.

DeCLUTR needs documents, DiffCSE a generator: `data/documents.txt`, the same sentences one a line, with a blank line
wherever 512 words have come together; and `data/generator`, a masked language model with the encoder's tokens. An
anchor of DeCLUTR stands for half a document; since 32 anchors a step leave 19 steps, a second row has 8, as the
released code has on one GPU.

RankCSE has two teachers, `data/teacher_diffcse` and `data/teacher_simcse`, rows of this table that were trained before.
SNCSE reads `data/negated.csv`: each sentence with "not" after its first auxiliary verb, or "Not " before it.

CT, ConSERT, IS-BERT and DeCLUTR train the mean of the tokens, PromptBERT and SNCSE [MASK], SimCSE [CLS] with a head.
"SimCSE (mean)" trains the mean too, without a head, so that one sees what is the pooler's doing.
"""

import math
from typing import Any

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.configs import (
    consert,
    ct,
    declutr,
    diffcse,
    esimcse,
    is_bert,
    prompt_bert,
    rank_cse,
    scd,
    simcse_plus_plus,
    sncse,
    unsup_bert,
)
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

SENTENCES, LINES = 9600, 30  # of the epoch; of a document, about
GIVEN = ("model.init_from", "data.train", "train.epochs", "train.max_steps")  # on the command line
RATES = (1e-5, 3e-5, 1e-4, 3e-4)
CT = {"train.milestones": "60:0.8,120:0.6,180:0.4,240:0.2"}  # a tenth, two, three and four tenths of its steps
MEAN = {"model.pooler": "avg", "model.mlp": "none"}
ESIMCSE = {f"{of}reading": "released" for of in ("views.repetition_", "objective.momentum_contrast.")}
DOCUMENTS, GENERATOR = {"data.train": "data/documents.txt"}, {"model.generator": "data/generator"}
TEACHERS = {"teacher.model": "data/teacher_diffcse", "teacher.second": "data/teacher_simcse"}
SYSTEMS: dict[str, tuple[config_dict.ConfigDict, dict[str, Any]]] = {  # recipe, other fields
    "SimCSE": (unsup_bert.get_config(), {}),
    "SimCSE (mean)": (unsup_bert.get_config(), MEAN),
    "SimCSE++": (simcse_plus_plus.get_config(), {}),
    "CT": (ct.get_config(), CT),
    "CT (released)": (ct.get_config("released"), CT),
    "ConSERT": (consert.get_config(), {}),
    "SCD": (scd.get_config(), {}),
    "IS-BERT": (is_bert.get_config(), {}),
    "DeCLUTR": (declutr.get_config("short"), DOCUMENTS),
    "DeCLUTR (8 anchors)": (declutr.get_config("short"), DOCUMENTS | {"train.batch_size": 8}),
    "DiffCSE": (diffcse.get_config(), GENERATOR),
    "DiffCSE + SimCSE++": (diffcse.get_config("simcse_plus_plus"), GENERATOR),
    "ESimCSE": (esimcse.get_config(), {}),
    "ESimCSE (released)": (esimcse.get_config(), ESIMCSE),
    "PromptBERT": (prompt_bert.get_config(), {}),
    "SNCSE": (sncse.get_config(), {"data.train": "data/negated.csv"}),
    "RankCSE": (rank_cse.get_config(), TEACHERS),
    "RankCSE (ListNet)": (rank_cse.get_config("listnet"), TEACHERS),
}


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE, one epoch."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    columns = ("stsb_dev", *TASKS, "sts_avg", "alignment", "uniformity", "anisotropy", "steps", "training_minutes")
    config.sweep = sweep_defaults("Systems trained on sentences alone", "All systems", columns, "SimCSE at 3e-05")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The systems, each at four rates."""
    base, rows = get_config(), []
    for name, (recipe, others) in SYSTEMS.items():
        fields = {key: value for key, value in as_recipe(recipe, base).items() if key not in GIVEN} | others
        batch = fields.get("train.batch_size", base.train.batch_size)
        if recipe.data.positives == "spans":
            batch = batch // recipe.data.spans.anchors * LINES
        fields["eval.every"] = fields["analysis.every"] = math.ceil(SENTENCES / batch / 3)
        rows += [
            Variant(f"{name} at {rate:.0e}", fields | {"train.learning_rate": rate}, chosen_on=("stsb_dev",))
            for rate in RATES
        ]
    return tuple(rows)
