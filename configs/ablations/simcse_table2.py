"""SimCSE, Table 2: kinds of positives, with one encoder and with two, unsupervised, STS-B dev.

The next sentences are those of documents, `data/wiki_documents.txt`: one sentence per line in order, a blank line
between documents. The paper does not say which documents; for a fair comparison take as many sentences as the other
rows have. With two encoders, that of the anchors is scored and exported.

The files: `simcse-jax build-data wiki_documents --source DUMP`, and `wiki_sentences` for the other rows.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.sweep = sweep_defaults("Unsupervised objectives", "SimCSE, Table 2", ("stsb_dev",), baseline="SimCSE")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table, for one encoder and then for two."""
    documents = {"data.train": "data/wiki_documents.txt"}
    rows = {
        "next sentence": (67.1, 68.9, documents | {"data.positives": "next_sentence"}),
        "next 3 sentences": (67.4, 68.8, documents | {"data.positives": "next_3_sentences"}),
        "delete one word": (75.9, 73.1, {"data.augment.name": "delete_one"}),
        "SimCSE": (82.5, 80.7, {}),
    }
    one = [Variant(name, fields, {"stsb_dev": paper}) for name, (paper, _, fields) in rows.items()]
    two = [
        Variant(f"{name} with two encoders", fields | {"model.dual_encoder": True}, {"stsb_dev": paper})
        for name, (_, paper, fields) in rows.items()
    ]
    return (*one, *two)
