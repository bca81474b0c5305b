"""A retriever from Qwen3-Embedding: questions and passages with hard negatives, in several sizes of the embedding.

`retrieval_qwen3` trains products of low rank on all linear maps (LoRA), `:whole` the whole model. The fields are those
of E5-Mistral (Wang et al. 2024, arXiv:2401.00368, section 4.1 and appendix): temperature 0.02, rank 16, 512 tokens, one
epoch at 1e-4 with a warm-up, an instruction before questions alone; whole models train at 1e-5. The batch is 1,024 and
runs in chunks, whose loss is that of the whole batch. Sizes of the embedding are Qwen3-Embedding's (Zhang et al. 2025,
arXiv:2506.05176). No paper has this table: it is a start for data of your own.

The data: `question,passage,hard_neg`, with any number of columns of negatives, as `simcse-jax mine` writes them.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

RATES = {"lora": 1e-4, "whole": 1e-5}


def get_config(variant: str = "lora") -> config_dict.ConfigDict:
    """The hyper-parameters above."""
    config = default_config()
    config.model.init_from = "Qwen/Qwen3-Embedding-0.6B"
    config.model.keep_settings = True
    config.model.pooler = "last"
    config.model.mlp = "none"
    config.model.dropout = 0.0  # pairs need none; decoders were trained without
    config.data.train = "data/mined.csv"
    config.data.max_length = 512
    config.data.prompts.anchor = (
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
    )
    config.objective.info_nce.temperature = 0.02
    config.matryoshka.dimensions = (1024, 512, 256, 128, 64)
    config.train.learning_rate = choose_variant(variant, RATES)
    config.train.batch_size = 1024
    config.train.warmup = 0.1
    config.train.epochs = 1
    config.train.dtype = "bfloat16"
    config.parallel.chunk_size = 32
    config.eval.data = ""
    if variant == "lora":
        config.model.lora.rank = 16
        config.model.lora.alpha = 32.0
        config.model.lora.dropout = 0.1
        config.model.lora.targets = ("all-linear",)
    return config
