"""SimCSE, Table C.1: flow and whitening, fit on NLI or on the target, test average.

Variants: `bert` (BERT-base, the default) and `sbert` (SBERT's checkpoint of NLI). No row trains anything. The pooler
for whitening is the first-last average, as in the paper's Appendix C, and for flow the average of the last two layers,
as in its authors' code. The first row is the model alone (Table 5: the first-last average for BERT; for SBERT its own
pooler, the average of the last layer). Sentences of NLI without labels: `data/nli_sentences.txt`, one per line. For
transfer tasks after post-processing see `simcse_tableE1.py`.

The file: `python -m simcse_jax.build_data nli_sentences --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults

ENCODERS = {"bert": "bert-base-uncased", "sbert": "sentence-transformers/bert-base-nli-mean-tokens"}
PAPER = {  # none; flow, whitening: each on NLI, on the target
    "bert": (56.70, 66.55, 66.31, 66.28, 64.26),
    "sbert": (74.89, 76.60, 75.48, 77.00, 72.64),
}


def get_config(encoder: str = "bert") -> config_dict.ConfigDict:
    """The model alone."""
    config = default_config()
    config.model.init_from = choose_variant(encoder, ENCODERS)
    config.model.pooler = "avg_first_last"
    config.model.mlp = "none"
    config.train.epochs = 0
    config.sweep = sweep_defaults(
        f"Post-processing, {encoder}", "SimCSE, Table C.1", ("sts_avg", "stsb_dev"), baseline="none"
    )
    return config


def get_variants(encoder: str = "bert") -> tuple[Variant, ...]:
    """The rows of the table for the encoder, after the model alone."""
    data = {"NLI": "data/nli_sentences.txt", "target": "target"}
    poolers = {"none": "avg" if encoder == "sbert" else "avg_first_last"}
    poolers |= {"flow": "avg_top2", "whitening": "avg_first_last"}
    rows = {"none": {"model.pooler": poolers["none"]}} | {
        f"{method} ({name})": {
            "model.pooler": poolers[method],
            "eval.postprocess": method,
            "eval.postprocess_data": source,
        }
        for method in ("flow", "whitening")
        for name, source in data.items()
    }
    paper = choose_variant(encoder, PAPER)
    return tuple(
        Variant(name, fields, {"sts_avg": score}) for (name, fields), score in zip(rows.items(), paper, strict=True)
    )
