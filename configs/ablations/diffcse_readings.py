"""DiffCSE: does finding replaced tokens help where only masked ones are replaced?

As released, the generator's best guess takes the place of every token. A small generator then changes most of the
tokens that were not even masked, and telling them apart teaches little. The paper's reading draws words at the masked
positions alone. Losses are a mean over tokens in both; the paper sums them over a sentence.

One epoch of 9,600 sentences as in `ablations/systems`, at one rate for all, the best of SimCSE and DiffCSE there. First
choose the masking rate on STS-B dev with one seed (the first three rows of DiffCSE), then compare with more.
`metrics.jsonl` of each run has the share of replaced tokens and the discriminator's accuracy. The model, the data and
what is scored are given on the command line, as in `benchmarks/tables.sh`.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.configs import diffcse
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

GIVEN = ("model.init_from", "data.train", "train.learning_rate", "train.epochs", "train.max_steps", "eval.every")
MASKING_RATES = (0.15, 0.2, 0.3)
RATE, READING = (f"objective.replaced_token_detection.{name}" for name in ("masking_rate", "reading"))


def get_config() -> config_dict.ConfigDict:
    """SimCSE, one epoch."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.train.learning_rate = 1e-4
    config.eval.every = 50
    columns = ("stsb_dev", *TASKS, "sts_avg", "alignment", "uniformity", "best_step", "steps")
    config.sweep = sweep_defaults("DiffCSE's replaced tokens", "DiffCSE", columns, "SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """SimCSE, and DiffCSE and DiffCSE + SimCSE++ in both readings; in the paper's at each masking rate."""
    base = get_config()
    rows = [Variant("SimCSE", {})]
    for name, argument in (("DiffCSE", "sts"), ("DiffCSE + SimCSE++", "simcse_plus_plus")):
        recipe = as_recipe(diffcse.get_config(argument), base)
        fields = {name: value for name, value in recipe.items() if name not in GIVEN}
        fields["model.generator"] = "data/generator"
        rows += [
            Variant(f"{name} ({rate} masked)", fields | {READING: "paper", RATE: rate}, chosen_on=("stsb_dev",))
            for rate in MASKING_RATES
        ]
        rows.append(Variant(f"{name} (released)", fields))
    return tuple(rows)
