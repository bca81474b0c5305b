"""ConSERT (Yan et al. 2021): NT-Xent of two changed views of each sentence of the similarity sets, without labels.

`consert` is BERT-base: one view has feature cutoff (a fifth of the columns zero), the other one shuffled positions, and
there is no dropout. `consert:large` is BERT-large: the sentence as it is against shuffled positions, with dropout, for
25 epochs.

The values are those of the released code, the same for both models unless stated: temperature 0.1, batches of 96, 67
tokens (its `max_seq_length` of 64, and 3), the learning rate 5e-7, AdamW without bias correction, ε 1e-6, weight decay
0.01, the gradient clipped at norm 1, 10% of the steps as warm-up, an end after 10 evaluations without a better score.
Its loss is 0.15 (mean ℓ₁ + mean ℓ₂); with `symmetric` ours is the mean of ½ (ℓ₁ + ℓ₂), so the weight is 0.3
(`simcse_jax/objectives/info_nce.py: nt_xent`).

The code trains the last layer's mean, chooses the checkpoint by it, and reports the mean of the last two layers. It
evaluates every 200 steps of an epoch and at its end, five times in its 930 steps (large: every 100, ten times): here as
often, at equal intervals. Its authors trained the large model that they publish with `max_seq_length` 40.

The data are the texts of the train, development and test sets of all seven STS tasks, 89,192 sentences, and STS-B's
development set chooses: the encoder has seen the sentences that it is scored on. Other methods' scores do not compare
with these unless they are trained so too.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(encoder: str = "base") -> config_dict.ConfigDict:
    """The released code's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    encoders = {
        "base": ("bert-base-uncased", "cutoff", "off", 10, 186),
        "large": ("bert-large-uncased", "none", "independent", 25, 93),
    }
    chosen = choose_variant(encoder, encoders)
    config.model.init_from, config.views.anchor_change, config.views.positive, *intervals = chosen
    config.train.epochs, config.eval.every = intervals
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.eval.pooler = "avg_top2"
    config.eval.development_pooler = "avg"
    config.data.train = "sts:data/SentEval/data/downstream"
    config.data.max_length = 67
    config.views.positive_change = "shuffled"
    config.objective.info_nce.weight = 0.3
    config.objective.info_nce.temperature = 0.1
    config.objective.info_nce.symmetric = True
    config.objective.info_nce.negatives = "both"
    config.train.batch_size = 96
    config.train.learning_rate = 5e-7
    config.train.weight_decay = 0.01
    config.train.epsilon = 1e-6
    config.train.bias_correction = False
    config.train.warmup = 0.1
    config.train.patience = 10
    return config
