"""Supervised SimCSE from RoBERTa (SimCSE, Table A.1): SNLI and MNLI triplets, three epochs, the head kept.

`sup_roberta` is RoBERTa-base, `sup_roberta:large` RoBERTa-large. `:mlm` and `:large_mlm` have the auxiliary
masked-language-model loss, which should help transfer tasks (Table E.1, λ = 0.1).

The file: `simcse-jax build-data nli --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    base, large = ("roberta-base", 512, 5e-5), ("roberta-large", 512, 1e-5)
    variants = {"base": base, "large": large, "mlm": base, "large_mlm": large}
    config.model.init_from, config.train.batch_size, config.train.learning_rate = choose_variant(variant, variants)
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.epochs = 3
    if variant.endswith("mlm"):
        config.objective.mlm.weight = 0.1
    return config
