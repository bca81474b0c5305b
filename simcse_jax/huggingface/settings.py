"""Reads `config_sentence_transformers.json`: prompts, the size of embeddings and how to compare them."""

from pathlib import Path
from typing import NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json
from simcse_jax.models.config import SIMILARITIES

FILE = "config_sentence_transformers.json"
NO_PROMPTS = {"query": "", "document": ""}  # every model has these two; the file may fill them
OURS = "SentenceTransformer"  # the kind of a model whose file has no `model_type`


class Settings(NamedTuple):
    """The contents of the file."""

    prompts: dict[str, str] = NO_PROMPTS  # texts to put before sentences, by name
    default_prompt_name: str | None = None  # the one that `encode` uses; None: no prompt
    similarity: str = "cosine"  # of `SIMILARITIES`
    truncate_dim: int | None = None  # embeddings keep so many elements; None: all
    model_type: str = OURS  # other kinds of models, such as CrossEncoder, have no embeddings of sentences


DEFAULTS = Settings()  # of a folder without the file


def read_settings(folder: Path) -> Settings:
    """Reads the file of a model's folder; the defaults if there is none."""
    path = folder / FILE
    if not path.is_file():
        return DEFAULTS
    fields = read_json(path)
    kind = fields.get("model_type") or OURS
    if not isinstance(kind, str):
        raise UserError(f"{path}: model_type is {kind!r:.60}, not a name")
    if kind != OURS:
        return Settings(model_type=kind)  # its prompts are not for embeddings
    prompts = fields.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError(f"{path}: prompts is {prompts!r:.60}; it must have a text for each name")
    prompts = NO_PROMPTS | {name: text or "" for name, text in prompts.items()}
    default = fields.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise UserError(f"{path}: default_prompt_name is {default!r:.60}, but its prompts are {', '.join(prompts)}")
    similarity = fields.get("similarity_fn_name") or SIMILARITIES[0]
    if similarity not in SIMILARITIES:
        raise UserError(f"{path}: similarity_fn_name is {similarity!r:.60}; supported are {', '.join(SIMILARITIES)}")
    size = fields.get("truncate_dim")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise UserError(f"{path}: truncate_dim is {size!r:.60}; it must be a whole number, 1 or more")
    return Settings(prompts, default, similarity, size)
