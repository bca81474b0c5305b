"""SBERT (Reimers and Gurevych 2019, section 3.1), the supervised baseline of SimCSE and SimCSE++: a classifier of NLI.

`sbert_nli` starts from BERT-base, `:bert_large` from BERT-large, `:roberta` and `:roberta_large` from RoBERTa
(SRoBERTa). Softmax of (u, v, |u − v|) over entailment, neutral and contradiction, mean pooling, one epoch. The learning
rate rises over the first tenth of the steps, and falls to zero over the others. The paper gives no more: 130 tokens
(128, and the two special ones), decay 0.01, and ε 1e-6 without bias correction are the defaults of
sentence-transformers 0.2 (of 0.1: 66 tokens, decay 0.01, ε 1e-8, bias correction). What differs here: the library's
classifier has a bias, ours none, as in the paper; and the cosine chooses the checkpoint, where the library takes the
best of four similarities. Columns of the data: sent0, sent1, label.

The file: `simcse-jax build-data nli_pairs --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

ENCODERS = {
    "bert": "bert-base-uncased",
    "bert_large": "bert-large-uncased",
    "roberta": "roberta-base",
    "roberta_large": "roberta-large",
}


def get_config(encoder: str = "bert") -> config_dict.ConfigDict:
    """The paper's hyper-parameters, and the library's where it gives none."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from = choose_variant(encoder, ENCODERS)
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "data/nli_pairs.csv"
    config.data.max_length = 130
    config.objective.info_nce.weight = 0.0
    config.objective.softmax_nli.weight = 1.0
    config.train.batch_size = 16
    config.train.learning_rate = 2e-5
    config.train.weight_decay = 0.01
    config.train.epsilon = 1e-6
    config.train.bias_correction = False
    config.train.warmup = 0.1
    config.eval.every = 1000
    return config
