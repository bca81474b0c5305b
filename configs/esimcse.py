"""ESimCSE (Wu et al. 2022, arXiv:2109.04380): positives with repeated tokens, and a queue of negatives.

`esimcse` is BERT-base, `:large`, `:roberta` and `:roberta_large` are the other encoders. The paper and the released
code agree on batch 64, 1 epoch, τ = 0.05, γ = 0.995, 32 tokens, SimCSE's head in training only, an evaluation every
125 steps, and the learning rates. The queue, the rate of repetition and dropout are those of the code's script.

Both readings are the paper's, as printed. The code repeats up to min(10, ⌊rate · tokens⌋) less one tokens
(`views.repetition_reading=released`), and its momentum encoder starts from random weights, because it is copied before
the pretrained ones are read (`objective.momentum_contrast.reading=released`). What no field says: it draws the
repetitions once, before training, has a queue per GPU, and empties it at the start of each further epoch.

⚠ The paper's text could not be read whole again here; it has dropout 0.15 for both large models, the script for
RoBERTa-large alone.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

VARIANTS = {  # encoder, learning rate, dropout, rate of repetition, queue
    "base": ("bert-base-uncased", 3e-5, 0.1, 0.32, 160),
    "large": ("bert-large-uncased", 1e-5, 0.1, 0.32, 160),
    "roberta": ("roberta-base", 1e-5, 0.1, 0.30, 160),
    "roberta_large": ("roberta-large", 1e-5, 0.15, 0.28, 128),
}


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """ESimCSE's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    encoder, learning_rate, dropout, repetition, queue = choose_variant(variant, VARIANTS)
    config.model.init_from, config.model.dropout = encoder, dropout
    config.views.positive_change = "repeated"
    config.views.repetition = repetition
    config.objective.info_nce.weight = 0.0
    config.objective.momentum_contrast.weight = 1.0
    config.objective.momentum_contrast.queue = queue
    config.train.batch_size = 64
    config.train.learning_rate = learning_rate
    config.train.epochs = 1
    config.eval.every = 125
    return config
