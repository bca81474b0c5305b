"""The shape of an encoder, read from a Hugging Face `config.json`."""

import dataclasses
from typing import Any

from simcse_jax.errors import UserError
from simcse_jax.models.relative_positions import BUCKETS

MODEL_TYPES = ("bert", "roberta", "mpnet")
DTYPES = ("float32", "bfloat16")  # for the encoder's matrix products
POOLERS = {  # see pooling.py
    "cls": "the last layer's first token, then the head if the model has one",
    "cls_before_pooler": "the last layer's first token, without a head",
    "avg": "the mean of the last layer over the tokens",
    "avg_top2": "the mean of the last two layers over the tokens",
    "avg_first_last": "the mean of the first and the last layer over the tokens",
    "max": "the maximum of the last layer over the tokens",
    "avg_sqrt": "the sum of the last layer over the tokens, divided by the square root of their number",
    "avg_weighted": "the mean of the last layer over the tokens, the n-th of them with weight n",
    "last": "the last layer's last token",
}

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Everything that decides an encoder's shapes and its deterministic forward pass."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int  # rows of the position table; a sentence may have `max_length` tokens
    type_vocab_size: int  # 0: the model has no types
    layer_norm_eps: float
    hidden_act: str
    pad_token_id: int

    @property
    def max_length(self) -> int:
        """The most tokens a sentence may have: RoBERTa's and MPNet's positions start after the padding index."""
        return self.max_positions - (0 if self.model_type == "bert" else self.pad_token_id + 1)

    @classmethod
    def from_hugging_face(cls, config: dict[str, Any], where: str) -> "EncoderConfig":
        """Reads the fields of a `config.json`.

        Args:
          config: the parsed file.
          where: its path, for error messages.

        Raises:
          UserError: for a model type or an option that this encoder does not support.
        """
        model_type = config.get("model_type")
        if model_type not in MODEL_TYPES:
            raise UserError(f"{where}: model_type is {model_type!r}; supported are {', '.join(MODEL_TYPES)}")
        if (positions := config.get("position_embedding_type", "absolute")) != "absolute":
            raise UserError(f"{where}: position_embedding_type is {positions!r}; only 'absolute' is supported")
        if model_type == "mpnet":  # transformers hard-codes these two numbers
            config = {**config, "type_vocab_size": 0}
            for field, only in (("pad_token_id", 1), ("relative_attention_num_buckets", BUCKETS)):
                if config.get(field) not in (None, only):
                    raise UserError(f"{where}: {field} is {config[field]}; for MPNet it must be {only}")

        def number(field: str, kind: type[int] | type[float] = int) -> Any:
            if field not in config:
                raise UserError(f"{where}: the field {field!r} is missing")
            try:
                return kind(config[field])
            except (TypeError, ValueError):
                raise UserError(f"{where}: {field} is {config[field]!r}, not a number") from None

        config = {"layer_norm_eps": 1e-12, **config}
        if config.get("pad_token_id") is None:
            config["pad_token_id"] = 0 if model_type == "bert" else 1
        fields = cls(
            model_type=model_type,
            vocab_size=number("vocab_size"),
            hidden_size=number("hidden_size"),
            num_layers=number("num_hidden_layers"),
            num_heads=number("num_attention_heads"),
            intermediate_size=number("intermediate_size"),
            max_positions=number("max_position_embeddings"),
            type_vocab_size=number("type_vocab_size"),
            layer_norm_eps=number("layer_norm_eps", float),
            hidden_act=config.get("hidden_act", "gelu"),
            pad_token_id=number("pad_token_id"),
        )
        for field in SIZES:
            if number(field) < 1:
                raise UserError(f"{where}: {field} is {config[field]}; it must be 1 or more")
        if fields.max_length < 3:  # two tokens are special
            raise UserError(f"{where}: max_position_embeddings is {fields.max_positions}, too few for a sentence")
        if fields.hidden_size % fields.num_heads:
            raise UserError(f"{where}: hidden_size {fields.hidden_size} is not divisible by {fields.num_heads} heads")
        if fields.hidden_act not in ACTIVATIONS:
            raise UserError(f"{where}: hidden_act {fields.hidden_act!r} is not one of {', '.join(ACTIVATIONS)}")
        return fields

    def keep_layers(self, num_layers: int) -> "EncoderConfig":
        """The first `num_layers` layers; 0 keeps all of them."""
        if not 0 <= num_layers <= self.num_layers:
            given = f"model.num_layers={num_layers}, --num-layers {num_layers} or NAME@{num_layers}"
            raise UserError(f"{given}: the model has {self.num_layers} layers (0 keeps all)")
        return dataclasses.replace(self, num_layers=num_layers or self.num_layers)


# Hugging Face's names of activations; the functions are in nonlinearities.py.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")
