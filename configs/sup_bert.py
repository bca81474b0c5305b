"""Supervised SimCSE from BERT (SimCSE, Table A.1): SNLI and MNLI triplets, three epochs, the head kept.

`sup_bert` is BERT-base, `sup_bert:large` BERT-large. `:mlm` and `:large_mlm` have the auxiliary masked-language-model
loss, which should help transfer tasks (Tables D.2 and E.1, λ = 0.1). `:neutral` is BERT-base with neutral hypotheses as
further negatives (Table 7).
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    base, large = ("bert-base-uncased", 512, 5e-5), ("bert-large-uncased", 512, 1e-5)
    variants = {"base": base, "large": large, "neutral": base, "mlm": base, "large_mlm": large}
    config.model.init_from, config.train.batch_size, config.train.learning_rate = choose_variant(variant, variants)
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.epochs = 3
    if variant == "neutral":
        config.data.train = "data/nli_with_neutral.csv"
        config.data.columns.update(anchor="sent0", positive="sent1", negative="hard_neg", neutral="neutral")
    if variant.endswith("mlm"):
        config.objective.mlm.weight = 0.1
    return config
