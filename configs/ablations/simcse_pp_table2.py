"""SimCSE++, Table 2: Barlow Twins added to InfoNCE, with artificial rows against its rank bottleneck, on each STS task.

The paper gives neither the weight of the added loss nor its λ_BT, so all rows are there in two readings (see
`simcse_jax/objectives/barlow_twins.py`):

- `paper`: the correlation of equation 4, not centred. "Additive" is read as weight 1, which its fall of twelve points
  does not contradict, and λ_BT is 0.005, that of Barlow Twins (Zbontar et al., 2021).
- `released`: as its authors' code has it, batch-normalized, weight 0.1, λ_BT = 0.012. Its 704 artificial rows are
  drawn anew at each step and shared by both views, as in both readings here.

The variants `paper` and `released` run one of them. There all three can be set for every row:
`--config.objective.barlow_twins.weight`, `.off_diagonal_weight` and `.reading`.
"""

from typing import Any

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import choose_variant, default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

COLUMNS = (*TASKS, "sts_avg")
READINGS = {"both": ("paper", "released"), "paper": ("paper",), "released": ("released",)}
FIELDS: dict[str, dict[str, Any]] = {  # of `objective.barlow_twins`
    "paper": {"reading": "paper", "weight": 1.0, "off_diagonal_weight": 0.005},
    "released": {"reading": "released", "weight": 0.1, "off_diagonal_weight": 0.012},
}


def get_config(readings: str = "both") -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base with Barlow Twins in the first reading."""
    first, *_ = choose_variant(readings, READINGS)
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.objective.barlow_twins.update(FIELDS[first])
    config.eval.every = 125
    title = "Barlow Twins" + ("" if readings == "both" else f", reading {readings}")
    config.sweep = sweep_defaults(title, "SimCSE++, Table 2", (*COLUMNS, "stsb_dev"), baseline="SimCSE")
    return config


def get_variants(readings: str = "both") -> tuple[Variant, ...]:
    """The rows of the table, those with Barlow Twins in each reading."""
    first, *_ = chosen = choose_variant(readings, READINGS)
    paper = {
        0: (50.59, 70.07, 58.48, 68.98, 68.23, 64.94, 67.07, 64.05),
        100: (66.19, 77.62, 67.67, 75.17, 73.34, 72.37, 67.26, 71.37),
        300: (69.29, 78.80, 69.03, 77.47, 75.27, 74.18, 70.88, 73.56),
        704: (70.52, 81.86, 73.72, 81.17, 76.95, 77.21, 71.10, 76.08),
    }

    def row(name: str, fields: dict, *scores: float) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)))

    simcse = (68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25)
    variants = [row("SimCSE", {"objective.barlow_twins.weight": 0.0}, *simcse)]
    for reading in chosen:
        # Those of the first reading are the config's, so that the command line can change them.
        own = {} if reading == first else {f"objective.barlow_twins.{name}": x for name, x in FIELDS[reading].items()}
        for rows, scores in paper.items():
            name, artificial = f"{reading} {rows} artificial", {"objective.barlow_twins.artificial": rows}
            variants.append(row(name, own | artificial, *scores))
    return tuple(variants)
