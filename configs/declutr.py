"""DeCLUTR (Giorgi et al. 2021): spans of the same document as positives, and a masked language model; for comparison.

RoBERTa-base, mean pooling. Two anchors a document, each with the mean of two positives. NT-Xent at τ = 0.05 over the
anchors and these means, where the document's other anchor is a negative too, plus the masked language model with weight
1: the anchors are embedded with 15% of their tokens masked, and one pass serves both. Decay 0.1, ε 1e-6 without bias
correction, clipping at 1, a slanted triangular schedule, one epoch, and the last weights, which no development set
chooses: the released code's.

The code has 4 documents on a GPU and gathers the embeddings of all GPUs; ⚠ that there are 4 of them, and 497,868
documents of OpenWebText, could not be looked up. `train.batch_size` counts anchors: 32 of 16 documents. `:short` is for
documents of 512 word pieces and spans of at most 128, such as documents made from consecutive lines of Wikipedia.

What differs here: spans are drawn once for a run, and a scale of the loss that the code had with several GPUs by
mistake (its `scale_fix`) is left out.

The file has a sentence a line, and a blank line between documents.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

LENGTHS = {"released": (512, 2048, 512), "short": (128, 512, 128)}


def get_config(lengths: str = "released") -> config_dict.ConfigDict:
    """The released configuration; the lengths are the variant's."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    spans = config.data.spans
    spans.longest, spans.tokens, config.data.max_length = choose_variant(lengths, LENGTHS)
    config.model.init_from = "roberta-base"
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "data/documents.txt"
    config.data.positives = "spans"
    config.views.anchor_change = "masked"
    config.objective.info_nce.symmetric = True
    config.objective.info_nce.negatives = "both"
    config.objective.mlm.weight = 1.0
    config.train.batch_size = 32
    config.train.learning_rate = 5e-5
    config.train.weight_decay = 0.1
    config.train.epsilon = 1e-6
    config.train.bias_correction = False
    config.train.schedule = "slanted_triangular"
    config.train.warmup = 0.1
    config.eval.every = 0
    config.checkpoint.keep_every = 5000  # to resume from, since no evaluation saves any
    return config
