"""Supervised SimCSE from BERT (SimCSE, Table A.1): SNLI and MNLI triplets, three epochs, the head kept.

`sup_bert` is BERT-base, `sup_bert:large` BERT-large. `:mlm` and `:large_mlm` have the auxiliary masked-language-model
loss, which should help transfer tasks (Tables D.2 and E.1, λ = 0.1). `:neutral` is BERT-base with neutral hypotheses as
further negatives (Table 7).

`:joint` is the try of Section 4 to combine the supervised with the unsupervised objective ("didn't find a meaningful
improvement"). Its batches hold sentences of Wikipedia, each the positive of itself under another dropout mask, and
triplets of NLI; every sentence is a negative for all others, and a missing hard negative is left out of the loss. The
paper says no more. Here rows are drawn from both files in proportion to their sizes, for one epoch of both; smaller
files of sentences, or `--config.train.epochs=3`, change that.

The files: `simcse-jax build-data nli --source MNLI SNLI --output data/nli_for_simcse.csv`, `nli_neutral` for
`:neutral` (`data/nli_with_neutral.csv`), `wiki_sentences` for `:joint` (`data/wiki1m_for_simcse.txt`).
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """The paper's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    base, large = ("bert-base-uncased", 512, 5e-5), ("bert-large-uncased", 512, 1e-5)
    variants = {"base": base, "large": large, "neutral": base, "mlm": base, "large_mlm": large, "joint": base}
    config.model.init_from, config.train.batch_size, config.train.learning_rate = choose_variant(variant, variants)
    config.model.mlp = "always"
    config.data.train = "data/nli_for_simcse.csv"
    config.train.epochs = 3
    if variant == "neutral":
        config.data.train = "data/nli_with_neutral.csv"
        config.data.columns.update(anchor="sent0", positive="sent1", negative="hard_neg", neutral="neutral")
    if variant.endswith("mlm"):
        config.objective.mlm.weight = 0.1
    if variant == "joint":
        config.data.train = "data/wiki1m_for_simcse.txt,data/nli_for_simcse.csv"
        config.data.mixed = True
        config.train.epochs = 1
    return config
