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
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), _ROBERTA),
    "electra": {"embedding_size": 768},
    "ernie": {"type_vocab_size": 4, "layer_norm_eps": 1e-5},
    "modernbert": {"max_position_embeddings": 8192},
    "nomic_bert": {"max_position_embeddings": 8192},
}


def _config(model_type: str, vocab_size: int, hidden_size: int, num_layers: int, **fields: Any) -> EncoderConfig:
    """A shape with heads of 64 numbers and a feed-forward part of four times the width, if `fields` says no other."""
    usual = {"model_type": model_type, "vocab_size": vocab_size, "hidden_size": hidden_size}
    usual |= {"num_hidden_layers": num_layers, "num_attention_heads": hidden_size // 64}
    usual |= {"intermediate_size": 4 * hidden_size, "max_position_embeddings": 512, "type_vocab_size": 2}
    return EncoderConfig.from_hugging_face(usual | _OF_TYPE.get(model_type, {}) | fields, model_type)


_BERT_BASE, _BERT_LARGE = (_config("bert", 30522, width, layers) for width, layers in ((768, 12), (1024, 24)))
_MINILM = _config("bert", 30522, 384, 12, num_attention_heads=12)
_DISTILROBERTA = _config("roberta", 50265, 768, 6)
_CAMEMBERT = _config("camembert", 32005, 768, 12)
_XLMR_BASE, _XLMR_LARGE = (_config("xlm-roberta", 250002, width, layers) for width, layers in ((768, 12), (1024, 24)))
_LONG_XLMR = _config("xlm-roberta", 250002, 1024, 24, max_position_embeddings=8194)
_MODERNBERT = _config("modernbert", 50368, 768, 22, intermediate_size=1152)
_NOMIC_BERT = _config("nomic_bert", 30528, 768, 12)
_MPNET = _config("mpnet", 30527, 768, 12)
_MULTILINGUAL_MINILM = _config("bert", 250037, 384, 12, num_attention_heads=12)
_QWEN3: dict[str, Any] = {"num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 1e6}
_QWEN3_0_6B, _QWEN3_4B, _QWEN3_8B = (
    _config("qwen3", words, width, layers, num_attention_heads=heads, intermediate_size=inner, **_QWEN3)
    for words, width, layers, heads, inner in (
        *((151669, 1024, 28, 16, 3072), (151665, 2560, 36, 32, 9728), (151665, 4096, 36, 32, 12288)),
    )
)
_GEMMA: dict[str, Any] = {"num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 1152}
_GEMMA |= {"max_position_embeddings": 2048, "sliding_window": 512, "use_bidirectional_attention": True}
_MISTRAL: dict[str, Any] = {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
PUBLISHED = {
    "bert-base-uncased": _BERT_BASE,
    "bert-large-uncased": _BERT_LARGE,
    "bert-base-cased": _config("bert", 28996, 768, 12),
    "bert-large-cased": _config("bert", 28996, 1024, 24),
    "roberta-base": _config("roberta", 50265, 768, 12),
    "roberta-large": _config("roberta", 50265, 1024, 24),
    "distilbert-base-uncased": _config("distilbert", 30522, 768, 6),
    "distilbert-base-cased": _config("distilbert", 28996, 768, 6),
    "distilroberta-base": _DISTILROBERTA,
    "microsoft/mpnet-base": _MPNET,
    "sentence-transformers/all-mpnet-base-v2": _MPNET,
    "bert-base-multilingual-cased": _config("bert", 119547, 768, 12),
    "xlm-roberta-base": _XLMR_BASE,
    "xlm-roberta-large": _XLMR_LARGE,
    "camembert-base": _CAMEMBERT,
    "google/electra-small-discriminator": _config("electra", 30522, 256, 12, embedding_size=128),
    "google/electra-small-generator": _config("electra", 30522, 256, 12, embedding_size=128),
    "google/electra-base-generator": _config("electra", 30522, 256, 12),
    "google/electra-large-generator": _config("electra", 30522, 256, 24, embedding_size=1024),
    "google/electra-base-discriminator": _config("electra", 30522, 768, 12),
    "google/electra-large-discriminator": _config("electra", 30522, 1024, 24, embedding_size=1024),
    "albert-base-v2": _config("albert", 30000, 768, 12, num_attention_heads=12),
    "albert-large-v2": _config("albert", 30000, 1024, 24, num_attention_heads=16),
    "albert-xlarge-v2": _config("albert", 30000, 2048, 24, num_attention_heads=16),
    "albert-xxlarge-v2": _config("albert", 30000, 4096, 12, num_attention_heads=64),
    "nghuyong/ernie-2.0-base-en": _config("ernie", 30522, 768, 12),
    "nghuyong/ernie-2.0-large-en": _config("ernie", 30522, 1024, 24),
    "nghuyong/ernie-3.0-base-zh": _config("ernie", 40000, 768, 12, max_position_embeddings=2048, use_task_id=True),
    "sentence-transformers/LaBSE": _config("bert", 501153, 768, 12),
    "sentence-transformers/all-distilroberta-v1": _DISTILROBERTA,
    "sentence-transformers/distiluse-base-multilingual-cased-v2": _config("distilbert", 119547, 768, 6),
    "sentence-transformers/paraphrase-albert-small-v2": _config("albert", 30000, 768, 6, num_attention_heads=12),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": _MULTILINGUAL_MINILM,
    "sentence-transformers/paraphrase-multilingual-mpnet-base-v2": _XLMR_BASE,
    "dangvantuan/sentence-camembert-base": _CAMEMBERT,
    "intfloat/multilingual-e5-small": _MULTILINGUAL_MINILM,
    "intfloat/multilingual-e5-base": _XLMR_BASE,
    "intfloat/multilingual-e5-large": _XLMR_LARGE,
    **dict.fromkeys(("BAAI/bge-small-en-v1.5", "thenlper/gte-small"), _MINILM),
    **dict.fromkeys(("BAAI/bge-base-en-v1.5", "thenlper/gte-base"), _BERT_BASE),
    **dict.fromkeys(
        ("BAAI/bge-large-en-v1.5", "thenlper/gte-large", "mixedbread-ai/mxbai-embed-large-v1"), _BERT_LARGE
    ),
    **dict.fromkeys(("BAAI/bge-m3", "Snowflake/snowflake-arctic-embed-l-v2.0"), _LONG_XLMR),
    "answerdotai/ModernBERT-base": _MODERNBERT,
    "answerdotai/ModernBERT-large": _config("modernbert", 50368, 1024, 28, intermediate_size=2624),
    "Alibaba-NLP/gte-modernbert-base": _MODERNBERT,
    "nomic-ai/nomic-embed-text-v1.5": _NOMIC_BERT,
    "Qwen/Qwen3-Embedding-0.6B": _QWEN3_0_6B,
    "Qwen/Qwen3-Embedding-4B": _QWEN3_4B,
    "Qwen/Qwen3-Embedding-8B": _QWEN3_8B,
    "google/embeddinggemma-300m": _config("gemma3_text", 262144, 768, 24, **_GEMMA),
    "intfloat/e5-mistral-7b-instruct": _config(
        "mistral", 32000, 4096, 32, max_position_embeddings=32768, sliding_window=4096, **_MISTRAL
    ),
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
    """The shape of a model, without its weights and without a download.

    `name`: a folder, a workdir, `package:NAME` or the hub id of a published encoder.
    """
    if split_glove(name) is not None:
        raise UserError(f"{name}: averages word vectors and has no layers; a step of training needs a transformer")
    name = published_name = split_step(name).name
    for owner in OWNERS:
        published_name = published_name.removeprefix(owner)
    local = name.startswith("package:") or local_path(name).exists()
    if not local and published_name in PUBLISHED:
        return PUBLISHED[published_name].keep_layers(num_layers)
    if not local:
        raise UserError(f"{name}: no such folder, and the only hub models with known shapes are {', '.join(PUBLISHED)}")
    folder = resolve(name)
    path = next((folder / place for place in PLACES if (folder / place).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no config.json; give a folder in Hugging Face format or package:NAME")
    return EncoderConfig.from_hugging_face(read_json(path), str(path)).keep_layers(num_layers)
