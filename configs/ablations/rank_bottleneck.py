"""SimCSE++, section 4.2: is it the rank of the correlation that makes Barlow Twins cost? The cause, varied by itself.

The paper says that N = 64 sentences cannot give D = 768 dimensions the identity as their correlation, whose rank is at
most N, and shows that artificial rows, which raise it, take the loss away. They also dilute it. A projector of 32, 63
or 64 dimensions, which Barlow Twins alone sees, has no bottleneck and no artificial rows: its correlation can be the
identity (63 is the rank that a centred one can have). Without it, 45, 136 and 320 rows are the paper's 100, 300 and 704
of the 704 dimensions that N = 64 leaves to 768; D − N is 320 for an encoder of 384.

What the paper's explanation predicts, written before any run:

1. Without rows and projector the loss costs; the fewer rows the more.
2. With a projector of 63 and 32 dimensions and no rows it costs nothing, in both readings. With 64 it costs a little at
   most, in the centred reading (`released`), whose correlation has rank 63.

From the small language model, Barlow Twins without rows had gained (SimCSE++, Table 2, in docs/background/results). Two
further experiments, chosen before either: if the paper's fall of twelve points comes with time, a run four times as
long has it; if it comes with the weight of the loss, which the paper does not print, ten times the weight has it. If
neither has, the contradiction is open.

Runs of 75 steps at 1e-4, those that are long of 300. The model, the data and what is scored are given on the command
line, as in `benchmarks/tables.sh`. `effective_rank` is that of the sentence embeddings.
"""

from typing import Any

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.configs.ablations.simcse_pp_table2 import FIELDS
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

ROWS, WIDTHS = (0, 45, 136, 320), (63, 32, 64)
LONG = {"train.max_steps": 300, "eval.every": 100, "analysis.every": 100}


def get_config() -> config_dict.ConfigDict:
    """SimCSE, 75 steps."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.train.learning_rate = 1e-4
    config.train.max_steps = 75
    config.eval.every = config.analysis.every = 75
    columns = ("stsb_dev", "STSBenchmark", "effective_rank", "anisotropy")
    config.sweep = sweep_defaults("The rank bottleneck", "SimCSE++, section 4.2", columns, baseline="SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """SimCSE, and Barlow Twins in both readings: with artificial rows, with a projector, long, and heavy."""
    rows = [Variant("SimCSE", {}), Variant("SimCSE long", LONG)]
    for reading, fields in FIELDS.items():
        of_reading = {
            **{f"{number} rows": {"objective.barlow_twins.artificial": number} for number in ROWS},
            **{f"projector of {width}": _projector(width) for width in WIDTHS},
            "0 rows at ten times the weight": {"objective.barlow_twins.weight": 10 * fields["weight"]},
            "0 rows long": LONG,
        }
        own = {f"objective.barlow_twins.{name}": value for name, value in fields.items()}
        rows += [
            Variant(f"{reading} {name}", own | others, baseline="SimCSE long" if others is LONG else "SimCSE")
            for name, others in of_reading.items()
        ]
    return tuple(rows)


def _projector(width: int) -> dict[str, Any]:
    """A linear map, without batch norm, so that the reading alone says whether the correlation is centred."""
    return {
        "projector.widths": str(width),
        "projector.last_norm": "none",
        "projector.objectives": ("barlow_twins",),
    }
