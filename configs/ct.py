"""Contrastive tension, CT (Carlsson et al. 2021): two encoders learn whether they read the same sentence.

`ct` is BERT-base with the paper's negatives, a sentence with seven others; `ct:released` has the released code's, seven
pairs of two fresh sentences each, and as the code does it scores both encoders every 500 updates and keeps the best of
all (`eval.encoder`). `ct:sbert` is CT-SBERT: the same as `ct` from SBERT trained on NLI with mean pooling.

Dot products of mean-pooled last layers, binary cross-entropy. These values are the released code's: a batch of 16
pairs, of which 2 are positive; no dropout; RMSprop with ρ 0.9 and ε 1e-7 outside the root; the learning rates 1e-5,
8e-6, 6e-6, 4e-6 and 2e-6 from the steps 0, 501, 1001, 1501 and 2001 on (TensorFlow counts a boundary of 500 to the
interval before it); 5,000 updates; 75 tokens; the mean over the batch; no clipping of gradients. What differs here: the
code draws sentences with replacement, while an epoch of ours reads each at most once. The sentences are those of
unsupervised SimCSE.

The scores in SimCSE's Table 5 (72.05) are those of checkpoints on the hub, which the authors trained with other,
unpublished settings. So this recipe is not expected to give them.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """The released code's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    variants = {
        "base": ("bert-base-uncased", "paper", "anchor"),
        "released": ("bert-base-uncased", "released", "better"),
        "sbert": ("sentence-transformers/bert-base-nli-mean-tokens", "paper", "anchor"),
    }
    chosen = choose_variant(variant, variants)
    config.model.init_from, config.objective.contrastive_tension.reading, config.eval.encoder = chosen
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.model.dual_encoder = True
    config.data.max_length = 75
    config.views.positive = "off"
    config.objective.info_nce.weight = 0.0
    config.objective.contrastive_tension.weight = 1.0
    config.objective.contrastive_tension.negatives = 7
    config.train.batch_size = 16
    config.train.max_steps = 5000
    config.train.optimizer = "rmsprop"
    config.train.epsilon = 1e-7
    config.train.learning_rate = 1e-5
    config.train.schedule = "steps"
    config.train.milestones = "501:0.8,1001:0.6,1501:0.4,2001:0.2"
    config.train.max_grad_norm = 0.0
    config.eval.every = 500
    return config
