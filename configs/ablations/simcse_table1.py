"""SimCSE, Table 1: discrete augmentations against dropout, unsupervised, STS-B dev.

The positive is a changed copy of the sentence, with its own dropout mask; the anchor is unchanged. (The paper does not
say whether it changes both; `--config.data.augment.both=True` does.) Synonyms come from a WordNet in WN-LMF,
`data/english-wordnet.xml.gz`; the paper uses nlpaug's.

The file: `simcse-jax build-data wiki_sentences --source DUMP`, or the authors' (docs/guides/data.md).
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.data.augment.lexicon = "data/english-wordnet.xml.gz"
    config.data.augment.mlm_model = "bert-base-uncased"
    config.sweep = sweep_defaults("Discrete augmentations", "SimCSE, Table 1", ("stsb_dev",), baseline="none")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table."""

    def augmented(name: str, stsb_dev: float, augmentation: str, percent: float = 10.0, **fields: float) -> Variant:
        changes = {"data.augment.name": augmentation, "data.augment.percent": percent}
        return Variant(name, changes | fields, {"stsb_dev": stsb_dev})

    return (
        Variant("none", {}, {"stsb_dev": 82.5}),
        augmented("crop 10%", 77.8, "crop", 10.0),
        augmented("crop 20%", 71.4, "crop", 20.0),
        augmented("crop 30%", 63.6, "crop", 30.0),
        augmented("delete 10%", 75.9, "delete", 10.0),
        augmented("delete 20%", 72.2, "delete", 20.0),
        augmented("delete 30%", 68.2, "delete", 30.0),
        augmented("delete one word", 75.9, "delete_one"),
        augmented("delete one word without dropout", 74.2, "delete_one", **{"model.dropout": 0.0}),
        augmented("synonym", 77.4, "synonym"),
        augmented("mlm 15%", 62.2, "mlm", 15.0),
    )
