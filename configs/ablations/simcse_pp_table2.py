"""SimCSE++, Table 2: Barlow Twins added to InfoNCE, with artificial rows against its rank bottleneck, test average.

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

from simcse_jax.config import choose_variant, default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults

READINGS = {"both": ("paper", "released"), "paper": ("paper",), "released": ("released",)}
FIELDS: dict[str, dict[str, Any]] = {  # of `objective.barlow_twins`
    "paper": {"reading": "paper", "weight": 1.0, "off_diagonal_weight": 0.005},
    "released": {"reading": "released", "weight": 0.1, "off_diagonal_weight": 0.012},
}


def get_config(readings: str = "both") -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base with Barlow Twins in the first reading."""
    first, *_ = choose_variant(readings, READINGS)
    config = default_config()
    config.objective.barlow_twins.update(FIELDS[first])
    config.eval.every = 125
    title = "Barlow Twins" + ("" if readings == "both" else f", reading {readings}")
    config.sweep = sweep_defaults(title, "SimCSE++, Table 2", ("sts_avg", "stsb_dev"), baseline="SimCSE")
    return config


def get_variants(readings: str = "both") -> tuple[Variant, ...]:
    """The rows of the table, those with Barlow Twins in each reading."""
    first, *_ = chosen = choose_variant(readings, READINGS)
    paper = {0: 64.05, 100: 71.37, 300: 73.56, 704: 76.08}
    variants = [Variant("SimCSE", {"objective.barlow_twins.weight": 0.0}, {"sts_avg": 76.25})]
    for reading in chosen:
        # Those of the first reading are the config's, so that the command line can change them.
        own = {} if reading == first else {f"objective.barlow_twins.{name}": x for name, x in FIELDS[reading].items()}
        for rows, score in paper.items():
            name, artificial = f"{reading} {rows} artificial", {"objective.barlow_twins.artificial": rows}
            variants.append(Variant(name, own | artificial, {"sts_avg": score}))
    return tuple(variants)
