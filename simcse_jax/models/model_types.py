"""What is particular about each model type of Hugging Face: the parts it has, and the fields of its `config.json`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from simcse_jax.models.relative_positions import BUCKETS

WORD_VECTORS = "glove"  # the model type of an average of word vectors, which has no layers
# Positions: where the rows of a table of them begin, or no table, but rotations in attention.
FROM_ZERO, AFTER_PADDING, ROTARY = "from_zero", "after_padding", "rotary"
MOST_LAYERS = 1 << 10
NONE: Mapping[str, Any] = MappingProxyType({})


class ModelType(NamedTuple):
    """A line of `MODEL_TYPES`. All fields that are named here are those of `config.json`, except for `parts`."""

    parts: Mapping[str, Any] = NONE  # the fields of `EncoderConfig` that the model type decides
    sizes: tuple[str, ...] = ("type_vocab_size",)  # that such a model has in addition to those that all have
    names: Mapping[str, str] = NONE  # its own names of the usual fields
    defaults: Mapping[str, Any] = NONE  # those of transformers, where they differ from BERT's
    fixed: Mapping[str, Any] = NONE  # written in transformers' code; what the file says is not read
    only: Mapping[str, Any] = NONE  # what a field must be if it is there
    projects_always: bool = False  # also where the embeddings have the hidden size


# RoBERTa's head of masked words always has the exact GELU.
ROBERTA = ModelType({"positions": AFTER_PADDING, "language_model_act": "gelu"}, defaults={"pad_token_id": 1})
DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
MODERNBERT_NAMES = {"hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps"}
# `models.rotary_config` reads what their configs say of rotations, windows and biases.
GATED_ROTARY: Mapping[str, Any] = MappingProxyType({"positions": ROTARY, "gated": True})
MODEL_TYPES = {
    "bert": ModelType(),
    "roberta": ROBERTA,
    "mpnet": ROBERTA._replace(
        parts={**ROBERTA.parts, "relative_bias": True},
        sizes=(),
        only={"pad_token_id": 1, "relative_attention_num_buckets": BUCKETS},  # transformers hard-codes both
    ),
    "distilbert": ModelType(
        {"drops_attention_output": False}, sizes=(), names=DISTILBERT_NAMES, fixed={"layer_norm_eps": 1e-12}
    ),
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "ernie": ModelType(sizes=("type_vocab_size", "task_type_vocab_size"), defaults={"task_type_vocab_size": 3}),
    "electra": ModelType(
        {"language_model_act": "gelu"}, sizes=("type_vocab_size", "embedding_size"), defaults={"embedding_size": 128}
    ),
    "albert": ModelType(
        {"drops_feed_forward_output": False},  # in transformers' code
        sizes=("type_vocab_size", "embedding_size", "num_hidden_groups"),
        defaults={"embedding_size": 128, "num_hidden_groups": 1, "hidden_act": "gelu_new"},
        only={"inner_group_num": 1},
        projects_always=True,
    ),
    "modernbert": ModelType(
        {**GATED_ROTARY, "pre_norm": True},
        sizes=(),
        names=MODERNBERT_NAMES,
        defaults={"layer_norm_eps": 1e-5, "pad_token_id": 50283},
    ),
    "nomic_bert": ModelType(
        {**GATED_ROTARY, "attention_bias": False, "feed_forward_bias": False}, defaults={"hidden_act": "silu"}
    ),
}
