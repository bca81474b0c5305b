"""SimCSE, Table D.2: the auxiliary masked-language-model loss and its weight λ, supervised, STS-B dev.

Both columns are scores on development sets; for transfer tasks these choose the regularization. The protocol of
transfer tasks is SentEval's PyTorch classifier with the settings that SimCSE's code tests with. It has faster ones for
development sets, `--config.eval.transfer_protocol=pytorch_fast`; which ones the paper used for this table is open.

The file: `simcse-jax build-data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Supervised SimCSE of BERT-base, as `configs/sup_bert.py`."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.batch_size = 512
    config.train.learning_rate = 5e-5
    config.train.epochs = 3
    config.eval.transfer = True
    config.eval.transfer_protocol = "pytorch"
    metrics = ("stsb_dev", "transfer_dev_avg")
    config.sweep = sweep_defaults("Auxiliary MLM loss", "SimCSE, Table D.2", metrics, baseline="without MLM")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table."""
    paper = {0.01: (85.7, 86.1), 0.1: (85.7, 86.2), 1.0: (85.1, 85.8)}
    return (
        Variant("without MLM", {}, {"stsb_dev": 86.2, "transfer_dev_avg": 85.8}),
        *(
            Variant(
                f"lambda {weight:g}",
                {"objective.mlm.weight": weight},
                {"stsb_dev": score, "transfer_dev_avg": transfer},
            )
            for weight, (score, transfer) in paper.items()
        ),
    )
