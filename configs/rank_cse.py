"""RankCSE (Liu et al. 2023, arXiv:2305.16726): InfoNCE, two views that rank the batch alike, and as two teachers do.

L = InfoNCE + β `ranking_consistency` + γ `ranking_distillation`. `base` is BERT-base with ListMLE, `listnet` the same
with ListNet, `roberta` RoBERTa-base with ListMLE. SimCSE's head in training only, batch 128, 1 epoch, 32 tokens,
learning rate 3e-5, τ = 0.05 in all three terms, β = γ = 1, an evaluation every 125 steps. The teachers are DiffCSE with
the share 1/3 and a large SimCSE; a cosine of the lists to learn is the weighted mean of theirs. Name others with
`teacher.model`, and one alone with `teacher.second=`.

⚠ No code of the authors was found. The public one, perceptiveshawty/RankCSE, says that it is not theirs; batch,
learning rate, temperatures, weights and the teachers of BERT-base are those of its script, where it names the paper's
for α, and for ListNet's τ_T = τ / 2. ListNet's weight of 0.1 is the default of its options. RoBERTa has no script
there: its teachers are those of the same kind, with BERT's numbers. The paper's text could not be read whole here.

All readings are the paper's. The public code computes something else for the consistency, and for either loss of a
list: `objective.ranking_consistency.reading=released`, `objective.ranking_distillation.reading=released`. Its ListNet
has no temperature of the teacher of its own either: `objective.ranking_distillation.teacher_temperature=0.05`. What
differs here: its teachers read sentences that were cut at 32 tokens, ours read them as the teachers' files say.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

BERT = "bert-base-uncased", "voidism/diffcse-bert-base-uncased-sts", "princeton-nlp/unsup-simcse-bert-large-uncased"
ROBERTA = "roberta-base", "voidism/diffcse-roberta-base-sts", "princeton-nlp/unsup-simcse-roberta-large"
VARIANTS = {  # encoder and teachers, loss of a list, its weight γ
    "base": (BERT, "listmle", 1.0),
    "listnet": (BERT, "listnet", 0.1),
    "roberta": (ROBERTA, "listmle", 1.0),
}


def get_config(variant: str = "base") -> config_dict.ConfigDict:
    """RankCSE's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the public code
    models, method, weight = choose_variant(variant, VARIANTS)
    config.model.init_from, config.teacher.model, config.teacher.second = models
    config.teacher.share = 1 / 3
    config.objective.ranking_consistency.weight = 1.0
    config.objective.ranking_consistency.temperature = 0.05
    config.objective.ranking_distillation.weight = weight
    config.objective.ranking_distillation.method = method
    config.objective.ranking_distillation.temperature = 0.05
    config.train.batch_size = 128
    config.train.learning_rate = 3e-5
    config.train.epochs = 1
    config.eval.every = 125
    return config
