"""The shape of an encoder, read from a Hugging Face `config.json`."""

import dataclasses
from typing import Any

from simcse_jax.errors import UserError
from simcse_jax.models.relative_positions import BUCKETS

MODEL_TYPES = ("bert", "roberta", "mpnet")
DTYPES = ("float32", "bfloat16")  # of the encoder's matrix products
POOLERS = {  # see pooling.py
    "cls": "the last layer's first token, and the head where there is one",
    "cls_before_pooler": "that token, without a head",
    "avg": "the mean of the last layer over the tokens",
    "avg_top2": "that of the last two layers",
    "avg_first_last": "that of the first and the last layer",
    "max": "the maximum of the last layer over the tokens",
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Everything that decides an encoder's shapes and its deterministic forward pass."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int  # rows of the position table; `max_length` is what a sentence may have
    type_vocab_size: int  # 0: the model has no types
    layer_norm_eps: float
    hidden_act: str
    pad_token_id: int

    @property
    def max_length(self) -> int:
        """The most tokens a sentence may have: RoBERTa's and MPNet's positions start behind the padding index."""
        return self.max_positions - (0 if self.model_type == "bert" else self.pad_token_id + 1)

    @classmethod
    def from_hugging_face(cls, config: dict[str, Any], where: str) -> "EncoderConfig":
        """Reads the fields of a `config.json`.

        Args:
          config: the parsed file.
          where: its path, for error messages.

        Raises:
          UserError: for a model type or an option that this encoder does not have.
        """
        model_type = config.get("model_type")
        if model_type not in MODEL_TYPES:
            raise UserError(f"{where}: model_type is {model_type!r}; this encoder reads {', '.join(MODEL_TYPES)}")
        if config.get("position_embedding_type", "absolute") != "absolute":
            raise UserError(f"{where}: position_embedding_type must be 'absolute'")
        pad, default_pad = config.get("pad_token_id"), 0 if model_type == "bert" else 1
        if model_type == "mpnet":  # transformers' model has these two numbers in its code, whatever the file says
            config = {**config, "type_vocab_size": 0}
            for field, only in (("pad_token_id", 1), ("relative_attention_num_buckets", BUCKETS)):
                if config.get(field) not in (None, only):
                    raise UserError(f"{where}: {field} is {config[field]}; an MPNet's is {only}")
        try:
            fields = cls(
                model_type=model_type,
                vocab_size=int(config["vocab_size"]),
                hidden_size=int(config["hidden_size"]),
                num_layers=int(config["num_hidden_layers"]),
                num_heads=int(config["num_attention_heads"]),
                intermediate_size=int(config["intermediate_size"]),
                max_positions=int(config["max_position_embeddings"]),
                type_vocab_size=int(config["type_vocab_size"]),
                layer_norm_eps=float(config.get("layer_norm_eps", 1e-12)),
                hidden_act=config.get("hidden_act", "gelu"),
                pad_token_id=int(pad if pad is not None else default_pad),
            )
        except KeyError as error:
            raise UserError(f"{where}: the field {error} is missing") from None
        except (TypeError, ValueError) as error:
            raise UserError(f"{where}: a field is not a number: {error}") from None
        if min(fields.num_layers, fields.num_heads, fields.intermediate_size, fields.max_length - 2) < 1:
            raise UserError(f"{where}: sizes must be 1 or more")
        if fields.hidden_size % fields.num_heads:
            raise UserError(f"{where}: hidden_size {fields.hidden_size} does not divide by {fields.num_heads} heads")
        if fields.hidden_act not in ACTIVATIONS:
            raise UserError(f"{where}: hidden_act {fields.hidden_act!r} is not one of {', '.join(ACTIVATIONS)}")
        return fields

    def keep_layers(self, num_layers: int) -> "EncoderConfig":
        """The first `num_layers` layers; 0 keeps all of them."""
        if not 0 <= num_layers <= self.num_layers:
            given = f"model.num_layers={num_layers}, --num-layers {num_layers} or NAME@{num_layers}"
            raise UserError(f"{given}: the model has {self.num_layers} layers (0 keeps all)")
        return dataclasses.replace(self, num_layers=num_layers or self.num_layers)


# The names that Hugging Face gives to activations; the functions stand in nonlinearities.py.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")
