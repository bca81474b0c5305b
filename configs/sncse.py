"""SNCSE (Wang et al. 2022, arXiv:2201.05979): negated sentences are soft negatives, within a margin of the positives.

`sncse` is BERT-base, `:large`, `:roberta` and `:roberta_large` are the other encoders. InfoNCE of a sentence with
itself under another dropout mask, τ = 0.05, and λ times `bidirectional_margin` with α = 0.1 and β = 0.3: λ is 1e-3 for
BERT, 5e-4 for RoBERTa. Batch 256 and learning rate 1e-5, for the large encoders 128 and 5e-6; 1 epoch, 32 tokens,
SimCSE's head in training only, a checkpoint every 125 steps. These are the numbers of the authors' code, where its
script and its program agree.

The file has a sentence and its negation, `sentence,negation_1`; the cell may be empty, and the sentence then has no
soft negative. The authors make negations by rules on spaCy's dependency parse (their generate_soft_negative_samples.py
writes a JSON list of both in each line), and their training takes "Not " and the sentence where it finds none, which
is the case for each sentence without a punctuation mark at its end.

The templates are the authors', and count in the 32 tokens, as in the code. It puts ` .` after sentences that end in no
punctuation mark, which is left to the file here. For RoBERTa it has a token of a space before each sentence, too.

⚠ The paper's text could not be read whole here.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

BASE, LARGE = (256, 1e-5), (128, 5e-6)
VARIANTS = {  # encoder, λ, batch and learning rate
    "base": ("bert-base-uncased", 1e-3, BASE),
    "large": ("bert-large-uncased", 1e-3, LARGE),
    "roberta": ("roberta-base", 5e-4, BASE),
    "roberta_large": ("roberta-large", 5e-4, LARGE),
}


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """SNCSE's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from, weight, rates = choose_variant(variant, VARIANTS)
    config.train.batch_size, config.train.learning_rate = rates
    config.model.pooler = "mask_token"
    config.model.template = 'This sentence : " [X] " means [MASK] .'
    config.views.positive_template = 'This sentence of " [X] " means [MASK] .'
    config.data.train = "data/wiki1m_negated.csv"
    config.data.columns.anchor = config.data.columns.positive = "sentence"  # its own positive
    config.data.columns.negative = "negation"
    config.objective.info_nce.negatives = "positives"
    config.objective.bidirectional_margin.weight = weight
    config.objective.bidirectional_margin.lower = 0.1
    config.objective.bidirectional_margin.upper = 0.3
    config.train.epochs = 1
    config.eval.every = 125
    return config
