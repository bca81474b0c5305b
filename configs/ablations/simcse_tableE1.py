"""SimCSE, Table E.1: transfer tasks of unsupervised models, also after post-processing.

The rows of BERT-base, with one for the auxiliary masked-language-model loss (λ = 0.1), and the same after flow and
whitening. On these, Appendix E only says that "they both hurt performance". They are fit on NLI without labels,
`data/nli_sentences.txt`, one per line. The STS average of SimCSE is that of Table 5.

The file: `python -m simcse_jax.build_data nli_sentences --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base, as `configs/unsup_bert.py`, also scored on transfer tasks."""
    config = default_config()
    config.eval.transfer = True
    config.sweep = sweep_defaults(
        "Transfer tasks", "SimCSE, Table E.1", ("transfer_avg", "sts_avg"), baseline="average of BERT"
    )
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table, and those after post-processing, each compared with its own baseline."""
    as_it_is = {"model.mlp": "none", "train.epochs": 0, "train.max_steps": 0}
    average, cls = as_it_is | {"model.pooler": "avg"}, as_it_is | {"model.pooler": "cls_before_pooler"}

    def after(name: str, fields: dict) -> list[Variant]:
        data = {"eval.postprocess_data": "data/nli_sentences.txt"}
        return [
            Variant(f"{name} + {method}", fields | data | {"eval.postprocess": method}, baseline=name)
            for method in ("flow", "whitening")
        ]

    return (
        Variant("average of BERT", average, {"transfer_avg": 84.94}),
        *after("average of BERT", average),
        Variant("CLS of BERT", cls, {"transfer_avg": 84.66}),
        Variant("SimCSE", {}, {"transfer_avg": 85.81, "sts_avg": 76.25}),
        *after("SimCSE", {}),
        Variant("SimCSE with MLM", {"objective.mlm.weight": 0.1}, {"transfer_avg": 86.64}, baseline="SimCSE"),
    )
