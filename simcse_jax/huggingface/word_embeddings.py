"""Reads and writes word vectors as the module `WordEmbeddings` of sentence-transformers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json, write_json
from simcse_jax.huggingface.tokenizer import WORDS_FILE
from simcse_jax.huggingface.weight_files import read_weights, write_safetensors
from simcse_jax.huggingface.word_tokenizer import Vocabulary, WordTokenizer, read_vocabulary

FILE = "wordembedding_config.json"
TENSOR = "emb_layer.weight"
# All versions of sentence-transformers find the class by this name.
TOKENIZER = "sentence_transformers.models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer"


class WordEmbeddings(NamedTuple):
    """The contents of the module's folder."""

    vocabulary: Vocabulary
    table: np.ndarray  # (V, D) float32
    max_length: int  # in words


def read_word_embeddings(folder: Path) -> WordEmbeddings:
    """Reads the module's folder."""
    fields = read_json(folder / FILE)
    kind, length = str(fields.get("tokenizer_class")), fields.get("max_seq_length", 1_000_000)
    if kind.rpartition(".")[2] != "WhitespaceTokenizer":
        raise UserError(f"{folder / FILE}: tokenizer_class is {kind:.80}; only WhitespaceTokenizer is supported")
    if type(length) is not int or length < 3:
        raise UserError(f"{folder / FILE}: max_seq_length is {length!r:.60}; it must be a whole number, 3 or more")
    vocabulary = read_vocabulary(folder / WORDS_FILE)
    tensors, path = read_weights(folder)
    table = tensors.get(TENSOR)
    if table is None:
        raise UserError(f"{path}: the tensor {TENSOR!r} is missing")
    if table.ndim != 2 or len(table) != len(vocabulary.words) or not table.size:
        words = len(vocabulary.words)
        raise UserError(f"{path}: {TENSOR!r} has shape {table.shape}, but {WORDS_FILE} has {words} words")
    if table.dtype.kind != "f" or not np.isfinite(table).all():
        raise UserError(f"{path}: {TENSOR!r} has values that are no finite numbers")
    return WordEmbeddings(vocabulary, np.asarray(table, np.float32), length)


def write_word_embeddings(folder: Path, vocabulary: Vocabulary, table: np.ndarray, max_length: int) -> None:
    """Writes the module's folder, which must exist and be empty."""
    fields = {"tokenizer_class": TOKENIZER, "update_embeddings": False, "max_seq_length": max_length}
    write_json(folder / FILE, fields)
    WordTokenizer(vocabulary).save(folder / WORDS_FILE)
    write_safetensors(folder / "model.safetensors", {TENSOR: table})
