"""What is known of published models by their names: the shapes of encoders, so that their programs can be built without
their files, and the poolers of models whose files do not state them.
"""

import dataclasses
from pathlib import Path

from simcse_jax.errors import UserError
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.models.config import WORD_VECTORS, EncoderConfig
from simcse_jax.names import split_glove, split_step
from simcse_jax.storage import local_path, read_json


def _bert(vocab_size: int, hidden_size: int, num_layers: int) -> EncoderConfig:
    heads, inner = hidden_size // 64, 4 * hidden_size
    return EncoderConfig("bert", vocab_size, hidden_size, num_layers, heads, inner, 512, 2, 1e-12, "gelu", 0)


def _roberta(hidden_size: int, num_layers: int) -> EncoderConfig:
    heads, inner = hidden_size // 64, 4 * hidden_size
    return EncoderConfig("roberta", 50265, hidden_size, num_layers, heads, inner, 514, 1, 1e-5, "gelu", 1)


_MPNET = EncoderConfig("mpnet", 30527, 768, 12, 12, 3072, 514, 0, 1e-5, "gelu", 1)
_DISTILBERT = dataclasses.replace(_bert(30522, 768, 6), model_type="distilbert", type_vocab_size=0)
PUBLISHED = {
    "bert-base-uncased": _bert(30522, 768, 12),
    "bert-large-uncased": _bert(30522, 1024, 24),
    "bert-base-cased": _bert(28996, 768, 12),
    "bert-large-cased": _bert(28996, 1024, 24),
    "roberta-base": _roberta(768, 12),
    "roberta-large": _roberta(1024, 24),
    "distilbert-base-uncased": _DISTILBERT,
    "distilbert-base-cased": dataclasses.replace(_DISTILBERT, vocab_size=28996),
    "distilroberta-base": _roberta(768, 6),
    "microsoft/mpnet-base": _MPNET,
    "sentence-transformers/all-mpnet-base-v2": _MPNET,
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
OWNERS = ("google-bert/", "FacebookAI/", "distilbert/")  # the hub accepts their models' names with and without them
# The place of config.json: in a model's folder; in a run's workdir; in a sentence-transformers folder.
PLACES = ("config.json", "model/config.json", "0_Transformer/config.json")


def own_pooler(name: str) -> str | None:
    """The pooler of a published model, by the last part of its name; None for any other model."""
    last = Path(name).name.partition("@")[0]
    return next((pooler for known, pooler in OWN_POOLERS.items() if known.rpartition("/")[2] == last), None)


def encoder_config(name: str, num_layers: int = 0) -> EncoderConfig:
    """The shape of a model, without its weights and without a download.

    Args:
      name: a folder, a workdir, `package:NAME` or the hub id of a published encoder.
      num_layers: keep the first n layers; 0 keeps all.

    Raises:
      UserError: for a name of unknown shape, or a damaged config.json.
    """
    if split_glove(name) is not None:
        raise UserError(f"{name}: averages word vectors and has no layers; a step of training needs a transformer")
    name = known = split_step(name).name
    for owner in OWNERS:
        known = known.removeprefix(owner)
    local = name.startswith("package:") or local_path(name).exists()
    if not local and known in PUBLISHED:
        return PUBLISHED[known].keep_layers(num_layers)
    if not local:
        raise UserError(f"{name}: no such folder, and the only hub models with known shapes are {', '.join(PUBLISHED)}")
    folder = resolve(name)
    path = next((folder / place for place in PLACES if (folder / place).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no config.json; give a folder in Hugging Face format or package:NAME")
    config = EncoderConfig.from_hugging_face(read_json(path), str(path))
    if config.model_type == WORD_VECTORS:
        raise UserError(f"{name}: averages word vectors and has no layers; a step of training needs a transformer")
    return config.keep_layers(num_layers)
