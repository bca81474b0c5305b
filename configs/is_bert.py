"""IS-BERT (Zhang et al. 2020): each token's features find their own sentence, with no labels; for comparison.

`is_bert` has the released code's hyper-parameters, `:paper` the paper's where they differ: a ReLU after the
convolutions, and the learning rate 1e-6 (⚠ the paper's rate could not be looked up).

Convolutions of 1, 3 and 5 tokens with 256 channels each make 768 features of a token from the last hidden states. The
sentence is their mean, at test time too. One encoding serves both, so `views.positive=shared`. Paper and code agree on
batches of 32, one epoch, and 10% warm-up; decay 0.01, ε 1e-7 without bias correction, and 131 tokens (`max_seq_length`
128, and 3) are the code's. What differs here: a convolution sees zeros at padding, where the code's sees what the
encoder has there; the last partial batch of the epoch is dropped; and the cosine chooses the checkpoint, where the code
takes the best of four similarities. Scored every 1000 steps, as in the code.

The file: `simcse-jax build-data nli_sentences --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

READINGS = {"released": ("none", 2e-6), "paper": ("relu", 1e-6)}


def get_config(reading: str = "released") -> config_dict.ConfigDict:
    """BERT-base; the activation and the learning rate are the reading's."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.model.convolutions.widths = ("1", "3", "5")
    config.model.convolutions.activation, config.train.learning_rate = choose_variant(reading, READINGS)
    config.data.train = "data/nli_sentences.txt"
    config.data.max_length = 131
    config.views.positive = "shared"
    config.objective.info_nce.weight = 0.0
    config.objective.jensen_shannon.weight = 1.0
    config.train.batch_size = 32
    config.train.weight_decay = 0.01
    config.train.warmup = 0.1
    config.train.epsilon = 1e-7
    config.train.bias_correction = False
    config.eval.every = 1000
    return config
