"""SimCSE++, Table 5: the factor m, the weight λ and the temperature τ_DCL of the dimension-wise loss, STS-B dev.

Each is varied around m = 0.9, λ = 0.1, τ_DCL = 5, under both readings of equation 5 (see
`simcse_jax/objectives/dimension_wise.py`), since the numbers mean different things in each. The variants `paper` and
`released` run one of them.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults

READINGS = {"both": ("paper", "released"), "paper": ("paper",), "released": ("released",)}
GRIDS = {
    "m": ("objective.off_dropout.m", {0.5: 68.55, 0.8: 81.61, 1.0: 79.11, 1.1: 79.99, 1.2: 71.49}),
    "lambda": (
        "objective.dimension_wise.weight",
        {0.02: 82.60, 0.05: 83.25, 0.2: 82.36, 0.5: 80.79, 1.0: 77.79},
    ),
    "tau": (
        "objective.dimension_wise.temperature",
        {1.0: 82.16, 2.0: 82.43, 10.0: 83.56, 20.0: 83.37, 50.0: 81.76},
    ),
}
CENTRE = 83.77  # m = 0.9, λ = 0.1, τ_DCL = 5


def get_config(readings: str = "both") -> config_dict.ConfigDict:
    """SimCSE++ of BERT-base, as `configs/simcse_plus_plus.py`."""
    reading, *_ = choose_variant(readings, READINGS)
    config = default_config()
    config.objective.info_nce.weight = 0.0
    config.objective.off_dropout.weight = 1.0
    config.objective.off_dropout.temperature = 0.05
    config.objective.off_dropout.m = 0.9
    config.objective.dimension_wise.weight = 0.1
    config.objective.dimension_wise.temperature = 5.0
    config.eval.every = 125
    title = "Numbers of SimCSE++" + ("" if readings == "both" else f", reading {readings}")
    config.sweep = sweep_defaults(title, "SimCSE++, Table 5", ("stsb_dev",), baseline=f"{reading} centre")
    return config


def get_variants(readings: str = "both") -> tuple[Variant, ...]:
    """The three grids of each reading, their common point once."""
    variants = []
    for reading in choose_variant(readings, READINGS):
        fields, centre = {"objective.dimension_wise.reading": reading}, f"{reading} centre"
        variants.append(Variant(centre, fields, {"stsb_dev": CENTRE}, centre))
        for symbol, (field, scores) in GRIDS.items():
            for value, score in scores.items():
                name = f"{reading} {symbol} {value:g}"
                variants.append(Variant(name, fields | {field: value}, {"stsb_dev": score}, centre))
    return tuple(variants)
