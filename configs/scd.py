"""SCD (Klein & Nabi 2022, arXiv:2203.07847): views of a sentence repel each other, and their dimensions decorrelate.

BERT-base with the hyper-parameters of the paper and the released code, which agree: [CLS] without a head; α = 1 and
τ = 0.05 for the repulsion, β = 0.005225 and λ = 0.012 for the decorrelation; dropout of 0.05 for one view and of 0.155
for the other, in hidden states and attention; batch 192, learning rate 3e-5, 1 epoch, 32 tokens, an evaluation every
250 steps. SICK-R's development set chooses the checkpoint.

The repulsion is `self_contrastive`, on the embeddings. The decorrelation is `barlow_twins` as released (centred, with
batch norm's 1e-5), on projected embeddings: D → 4096 → 4096 → 4096, with batch norm over each view and a ReLU between
the layers.

What differs here: the authors' first layer has a bias, which the batch norm after it takes away again. ⚠ Their batch
norm on several GPUs has the statistics of each GPU's own rows; ours has those of the global batch.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config


def get_config() -> config_dict.ConfigDict:
    """SCD's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from = "bert-base-uncased"
    config.model.mlp = "none"
    config.model.dropout = 0.05
    config.views.positive_dropout = 0.155
    config.projector.widths = "4096,4096,4096"
    config.projector.last_norm = "none"  # the objective has it
    config.projector.statistics = "each"
    config.projector.objectives = ("barlow_twins",)
    config.objective.info_nce.weight = 0.0
    config.objective.self_contrastive.weight = 1.0
    config.objective.self_contrastive.temperature = 0.05
    config.objective.barlow_twins.weight = 0.005225
    config.objective.barlow_twins.off_diagonal_weight = 0.012
    config.objective.barlow_twins.reading = "released"
    config.train.batch_size = 192
    config.train.learning_rate = 3e-5
    config.train.epochs = 1
    config.eval.every = 250
    config.eval.development = "sickr"
    return config
