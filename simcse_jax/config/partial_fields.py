"""The fields that say which part of the encoder trains, and which of them go together."""

from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError
from simcse_jax.field import BELOW_ONE, above, at_least, field, number

PARTIAL_SECTIONS = {
    "model.lora": "Products of low rank that train in the place of the encoder (LoRA; docs/lora.md).",
    "model.freeze": "Parts of the encoder that stay as they are.",
}

PARTIAL_FIELDS = {
    "model.lora.rank": field(0, "The rank of the products; 0: no LoRA, the encoder itself trains.", at_least(0)),
    "model.lora.alpha": field(16.0, "The products are multiplied by alpha / rank.", above(0), only="model.lora.rank"),
    "model.lora.targets": field(
        (),
        "The linear maps of each layer that have them, as PEFT names them: query,value (DistilBERT: q_lin,v_lin; "
        "ModernBERT: Wqkv); or all-linear; empty: those of queries and values.",
        only="model.lora.rank",
    ),
    "model.lora.dropout": number(
        0.0, "The dropout rate of their inputs in training.", BELOW_ONE, only="model.lora.rank"
    ),
    "model.lora.init_from": field(
        "",
        "A folder in PEFT's format with the products to start from; empty: new ones, which change nothing at first.",
        only="model.lora.rank",
    ),
    "model.freeze.embeddings": field(
        False, "The tables of the embedding layer, with their norm.", only=lambda config: not config.model.lora.rank
    ),
    "model.freeze.layers": field(0, "The first n layers; with LoRA, they have none.", at_least(0)),
}


def check_partial(config: Config) -> None:
    """Refuses an adapter that nothing would read."""
    if config.model.lora.init_from and not config.model.lora.rank:
        raise UserError(
            f"config.model.lora.init_from={config.model.lora.init_from}: model.lora.rank is 0; set it to the rank of "
            "the adapter, r in its adapter_config.json"
        )
