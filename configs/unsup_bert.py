"""Unsupervised SimCSE from BERT (SimCSE, Table A.1): a million Wikipedia sentences, one epoch.

`unsup_bert` is BERT-base, `unsup_bert:large` BERT-large. `:mlm` and `:large_mlm` have the auxiliary
masked-language-model loss, which should help transfer tasks (Table E.1, λ = 0.1).

The file: `simcse-jax build-data wiki_sentences --source DUMP`, or the authors' (docs/guides/data.md).
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    base, large = ("bert-base-uncased", 64, 3e-5), ("bert-large-uncased", 64, 1e-5)
    variants = {"base": base, "large": large, "mlm": base, "large_mlm": large}
    config.model.init_from, config.train.batch_size, config.train.learning_rate = choose_variant(variant, variants)
    if variant.endswith("mlm"):
        config.objective.mlm.weight = 0.1
    return config
