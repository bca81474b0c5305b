"""SimCSE, Figure 2: how alignment and uniformity move while four models train, measured every 10 steps.

Draw it with `simcse-jax geometry --runs WORKDIR/*/seed* --output DIR`: the runs record where they are
(`analysis.every`), so no checkpoints are kept. The paper measures STS-B; these records measure STS-B dev
(`analysis.data`). It does not say for how many steps it goes on; here it is the whole epoch of the other tables, and
`--config.train.max_steps=1000` ends earlier. The four values are those of Tables 1 and 3.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.analysis.every = 10
    config.sweep = sweep_defaults(
        "Alignment and uniformity while training", "SimCSE, Figure 2", ("stsb_dev",), baseline="unsupervised SimCSE"
    )
    return config


def get_variants() -> tuple[Variant, ...]:
    """The four lines of the figure."""
    return (
        Variant("unsupervised SimCSE", {}, {"stsb_dev": 82.5}),
        Variant("no dropout", {"model.dropout": 0.0, "views.positive": "off"}, {"stsb_dev": 71.1}),
        Variant("fixed 0.1", {"model.dropout": 0.1, "views.positive": "shared"}, {"stsb_dev": 43.6}),
        Variant("delete one word", {"data.augment.name": "delete_one"}, {"stsb_dev": 75.9}),
    )
