"""SimCSE++, Table 5: the factor m, the weight λ and the temperature τ_DCL of the dimension-wise loss, STS-B dev.

Each is varied around m = 0.9, λ = 0.1, τ_DCL = 5. The paper and its authors' code differ both in m (see
`simcse_jax/objectives/off_dropout.py`) and in equation 5 (`simcse_jax/objectives/dimension_wise.py`), and the numbers
mean different things in each reading. So the three grids are run under all four pairs of readings: a row
`m-released dcl-paper lambda 0.02` has m as released and the dimension-wise loss as printed. The variants
`m_released_dcl_paper` and the like run one pair.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

READINGS = {  # of m, and of the dimension-wise loss
    f"m_{m}_dcl_{dimension_wise}": ((m, dimension_wise),)
    for m in ("paper", "released")
    for dimension_wise in ("paper", "released")
}
READINGS = {"all": tuple(pair for pairs in READINGS.values() for pair in pairs)} | READINGS
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


def title_of(m: str, dimension_wise: str) -> str:
    """How rows of a pair of readings begin."""
    return f"m-{m} dcl-{dimension_wise}"


def get_config(readings: str = "all") -> config_dict.ConfigDict:
    """SimCSE++ of BERT-base, as `configs/simcse_plus_plus.py`."""
    first, *_ = choose_variant(readings, READINGS)
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.objective.info_nce.weight = 0.0
    config.objective.off_dropout.weight = 1.0
    config.objective.off_dropout.temperature = 0.05
    config.objective.off_dropout.m = 0.9
    config.objective.dimension_wise.weight = 0.1
    config.objective.dimension_wise.temperature = 5.0
    config.eval.every = 125
    title = "Numbers of SimCSE++" + ("" if readings == "all" else f", {title_of(*first)}")
    config.sweep = sweep_defaults(title, "SimCSE++, Table 5", ("stsb_dev",), baseline=f"{title_of(*first)} centre")
    return config


def get_variants(readings: str = "all") -> tuple[Variant, ...]:
    """The three grids of each pair of readings, their common point once."""
    variants = []
    for pair in choose_variant(readings, READINGS):
        fields = dict(zip(("objective.off_dropout.reading", "objective.dimension_wise.reading"), pair, strict=True))
        centre = f"{title_of(*pair)} centre"
        variants.append(Variant(centre, fields, {"stsb_dev": CENTRE}, centre))
        for symbol, (field, scores) in GRIDS.items():
            for value, score in scores.items():
                name = f"{title_of(*pair)} {symbol} {value:g}"
                variants.append(Variant(name, fields | {field: value}, {"stsb_dev": score}, centre))
    return tuple(variants)
