"""Known published models: the shapes of encoders, so that their programs can be built without their files, and the
poolers of models whose files do not state them.
"""

from pathlib import Path
from typing import Any

from simcse_jax.errors import UserError
from simcse_jax.host.names import split_glove, split_step
from simcse_jax.host.storage import local_path, read_json
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.models.config import EncoderConfig

_ROBERTA: dict[str, Any] = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_OF_TYPE: dict[str, dict[str, Any]] = {  # where they differ from BERT's
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet"), _ROBERTA),
    "modernbert": {"max_position_embeddings": 8192},
    "nomic_bert": {"max_position_embeddings": 8192},
}


def _config(model_type: str, vocab_size: int, hidden_size: int, num_layers: int, **fields: Any) -> EncoderConfig:
    """A shape with heads of 64 numbers and a feed-forward part of four times the width, if `fields` says no other."""
    usual = {"model_type": model_type, "vocab_size": vocab_size, "hidden_size": hidden_size}
    usual |= {"num_hidden_layers": num_layers, "num_attention_heads": hidden_size // 64}
    usual |= {"intermediate_size": 4 * hidden_size, "max_position_embeddings": 512, "type_vocab_size": 2}
    return EncoderConfig.from_hugging_face(usual | _OF_TYPE.get(model_type, {}) | fields, model_type)


_QWEN3: dict[str, Any] = {"num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 1e6}
_GEMMA: dict[str, Any] = {"num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 1152}
_GEMMA |= {"max_position_embeddings": 2048, "sliding_window": 512, "use_bidirectional_attention": True}
_MISTRAL: dict[str, Any] = {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
_MISTRAL |= {"max_position_embeddings": 32768, "sliding_window": 4096}
PUBLISHED = {  # of all others the hub's config.json is read
    "bert-base-uncased": _config("bert", 30522, 768, 12),
    "bert-large-uncased": _config("bert", 30522, 1024, 24),
    "roberta-base": _config("roberta", 50265, 768, 12),
    "roberta-large": _config("roberta", 50265, 1024, 24),
    "distilbert-base-uncased": _config("distilbert", 30522, 768, 6),
    "distilroberta-base": _config("roberta", 50265, 768, 6),
    "microsoft/mpnet-base": _config("mpnet", 30527, 768, 12),
    "xlm-roberta-base": _config("xlm-roberta", 250002, 768, 12),
    "google/electra-small-generator": _config("electra", 30522, 256, 12, embedding_size=128),
    "albert-base-v2": _config("albert", 30000, 768, 12, num_attention_heads=12),
    "answerdotai/ModernBERT-base": _config("modernbert", 50368, 768, 22, intermediate_size=1152),
    "nomic-ai/nomic-embed-text-v1.5": _config("nomic_bert", 30528, 768, 12),
    **{
        f"Qwen/Qwen3-Embedding-{size}": _config(
            "qwen3", words, width, layers, num_attention_heads=heads, intermediate_size=inner, **_QWEN3
        )
        for size, words, width, layers, heads, inner in (
            *(("0.6B", 151669, 1024, 28, 16, 3072), ("4B", 151665, 2560, 36, 32, 9728)),
            ("8B", 151665, 4096, 36, 32, 12288),
        )
    },
    "google/embeddinggemma-300m": _config("gemma3_text", 262144, 768, 24, **_GEMMA),
    "intfloat/e5-mistral-7b-instruct": _config("mistral", 32000, 4096, 32, **_MISTRAL),
}
# The poolers that the authors evaluate with, by their repositories: DiffCSE's and SCD's drop their projector at test
# time, though their checkpoints may contain it and name SimCSE's class, which has a head. Neither ConSERT's nor
# IS-BERT's authors name a model on the hub.
OWN_POOLERS = {
    **{f"voidism/diffcse-{name}": "cls_before_pooler" for name in ("bert-base-uncased-sts", "bert-base-uncased-trans")},
    **{f"voidism/diffcse-{name}": "cls_before_pooler" for name in ("roberta-base-sts", "roberta-base-trans")},
    "sap-ai-research/BERT-base-uncased-SCD-ACL2022": "cls_before_pooler",
    "sap-ai-research/RoBERTa-base-SCD-ACL2022": "cls_before_pooler",
    **{f"Contrastive-Tension/BERT-{name}": "avg" for name in ("Base-CT", "Base-NLI-CT", "Large-CT", "Large-NLI-CT")},
    "johngiorgi/declutr-small": "avg",
    "johngiorgi/declutr-base": "avg",
}
# The hub accepts their models' names with and without them.
OWNERS = ("google-bert/", "FacebookAI/", "distilbert/", "albert/", "almanach/")
# The place of config.json: in a model's folder; in a run's workdir; in a sentence-transformers folder.
PLACES = ("config.json", "model/config.json", "0_Transformer/config.json")


def own_pooler(name: str) -> str | None:
    """The pooler of a published model, by the last part of its name; None for any other model."""
    last = Path(name).name.partition("@")[0]
    return next((pooler for hub_name, pooler in OWN_POOLERS.items() if hub_name.rpartition("/")[2] == last), None)


def encoder_config(name: str, num_layers: int = 0) -> EncoderConfig:
    """The shape of a model, without its weights: of `PUBLISHED` without a download, of others by their `config.json`.

    `name`: a folder, a workdir, `package:NAME` or a hub id.
    """
    if split_glove(name) is not None:
        raise UserError(f"{name}: averages word vectors and has no layers; a step of training needs a transformer")
    name = published_name = split_step(name).name
    for owner in OWNERS:
        published_name = published_name.removeprefix(owner)
    local = name.startswith("package:") or local_path(name).exists()
    if not local and published_name in PUBLISHED:
        return PUBLISHED[published_name].keep_layers(num_layers)
    folder = resolve(name, ["config.json"])
    path = next((folder / place for place in PLACES if (folder / place).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no config.json; give a folder in Hugging Face format or package:NAME")
    return EncoderConfig.from_hugging_face(read_json(path), str(path)).keep_layers(num_layers)
