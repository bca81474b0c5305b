"""Pairs with scores, STS-B's training set: CoSENT (Huang et al. 2024), AnglE (Li and Li 2024), SBERT's regression.

`graded` trains BERT-base with CoSENT, `:angle` with AnglE's similarity, `:cosine_mse` with the squared error of
cosines, SBERT's "Regression Objective Function". Mean pooling, four epochs of batches of 16 with a warm-up of a tenth
of the steps, as sentence-transformers' example for STS-B has them; temperature 0.05, a scale of 20. None of them is a
run of the papers, which train on other data as well.

The data: SentEval's `data/downstream`, of which the training set of STS-B is read, with scores from 0 to 5.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

OBJECTIVES = {"cosent": "cosent", "angle": "angle", "cosine_mse": "cosine_mse"}


def get_config(objective: str = "cosent") -> config_dict.ConfigDict:
    """The hyper-parameters above."""
    config = default_config()
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "sts:data/SentEval/data/downstream:STSBenchmark"
    config.data.max_length = 64
    config.data.score_range = ("0", "5")
    config.objective.info_nce.weight = 0.0
    config.objective[choose_variant(objective, OBJECTIVES)].weight = 1.0
    config.train.batch_size = 16
    config.train.learning_rate = 2e-5
    config.train.warmup = 0.1
    config.train.epochs = 4
    config.eval.every = 100
    return config
