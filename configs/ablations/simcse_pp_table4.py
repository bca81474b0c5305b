"""SimCSE++, Table 4: dimension-wise contrastive learning alone, where others post-process, test average.

These are the rows of blocks 1 and 2 that are trained; those of whitening and flow are left out, since they train no
encoder. The untrained first row is `python -m simcse_jax.evaluate --model bert-base-uncased --pooler avg_first_last`
with `--data data/SentEval/data/downstream`. The pooler is that row's, without a head. Sentences of NLI without labels:
`data/nli_sentences.txt`, one a line. The paper gives τ_DCL = 0.05 and leaves open the learning rate and the batch
(SimCSE++'s here) and the reading of equation 5: it is `released`, since with the equation's plain product over the
batch, logits of 64 / 0.05 would leave next to no gradient.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """The dimension-wise loss alone, on Wikipedia."""
    config = default_config()
    config.model.pooler = "avg_first_last"
    config.model.mlp = "none"
    config.objective.info_nce.weight = 0.0
    config.objective.dimension_wise.weight = 1.0
    config.objective.dimension_wise.temperature = 0.05
    config.objective.dimension_wise.reading = "released"
    config.eval.every = 125
    config.sweep = sweep_defaults(
        "Dimension-wise loss alone", "SimCSE++, Table 4", ("sts_avg", "stsb_dev"), baseline="SimCSE"
    )
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows that are trained."""
    simcse = {
        "model.pooler": "cls",
        "model.mlp": "train",
        "objective.info_nce.weight": 1.0,
        "objective.dimension_wise.weight": 0.0,
    }
    return (
        Variant("dimension-wise on wiki", {}, {"sts_avg": 67.07}),
        Variant("dimension-wise on NLI", {"data.train": "data/nli_sentences.txt"}, {"sts_avg": 69.03}),
        Variant("SimCSE", simcse, {"sts_avg": 76.25}),
    )
