"""A retriever from EmbeddingGemma: as `retrieval_qwen3:whole`, with its prompts, its mean pooling and its sizes.

Its two dense modules after the pooler, 768 to 3072 to 768 numbers, train with the encoder (EmbeddingGemma:
arXiv:2509.20354).
"""

from ml_collections import config_dict

from simcse_jax.configs import retrieval_qwen3


def get_config() -> config_dict.ConfigDict:
    """The hyper-parameters above."""
    config = retrieval_qwen3.get_config("whole")
    config.model.init_from = "google/embeddinggemma-300m"
    config.model.pooler = "avg"
    config.data.prompts.anchor = "task: search result | query: "
    config.data.prompts.positive = "title: none | text: "
    config.matryoshka.dimensions = (768, 512, 256, 128)
    return config
