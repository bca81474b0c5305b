"""PromptBERT (Jiang et al. 2022, arXiv:2201.04337): a sentence is what BERT would write in the place of [MASK].

`prompt_bert` is BERT-base, `:roberta` RoBERTa-base, both unsupervised. Two templates make the two views of a sentence;
the first one is the model's. In training the embedding of a template alone is taken from those of its sentences
(template denoising). Batch 256, learning rate 1e-5, 1 epoch, τ = 0.05, 32 tokens of a sentence besides the 10 of its
template, an evaluation every 125 steps: the script of the released code.

The reading is the paper's: the tokens of a template alone keep the positions that they have around the sentence. In the
code those of RoBERTa begin with the table's first row (`views.denoising=released`); for BERT both are the same.

What differs here: each example has dropout masks of its own for the template alone; in the code sentences of one length
share them. The code chooses the checkpoint by embeddings from which the template's is taken, and scores those from
which it is not; here both are the latter, as the exported model has them. Its `evaluation.py` adds a full stop to
sentences that end without one, and tokenizes them together with the template; its training does neither. The
supervised models are left out: their head is BERT's own, of masked words, and their denoising stays at test time.

With `--config.train.epochs=0` BERT is scored as it is, in the first template.

⚠ The paper's text could not be read whole here. The head in training is the code's, SimCSE's; `model.mlp=none` leaves
it out.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

VARIANTS = {  # encoder, the two templates
    "base": ("bert-base-uncased", 'This sentence of "[X]" means [MASK].', 'This sentence : "[X]" means [MASK].'),
    "roberta": ("roberta-base", "This sentence : ' [X] ' means [MASK].", "The sentence : ' [X] ' means [MASK]."),
}


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """PromptBERT's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from, config.model.template, config.views.positive_template = choose_variant(variant, VARIANTS)
    config.model.pooler = "mask_token"
    config.views.denoising = "paper"
    config.data.max_length = 42
    config.train.batch_size = 256
    config.train.learning_rate = 1e-5
    config.train.epochs = 1
    config.eval.every = 125
    return config
