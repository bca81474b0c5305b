from pathlib import Path

import numpy as np

from simcse_jax.data.batches import Corpus, tokenize
from simcse_jax.data.corpus.making import Preparation, make, make_plan
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.data.examples import read_examples
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.config import EncoderConfig
from support import CONFIGS


def tokenizer_of(model: Path) -> Tokenizer:
    return Tokenizer(model, EncoderConfig.from_hugging_face(CONFIGS["bert"], "test"))


def prepare(folder: Path, model: Path, *data, max_length=16, vocabulary=40, **options) -> Prepared:
    """Prepares a corpus in this process."""
    tokenizer = tokenizer_of(model)
    plan = make_plan([str(source) for source in data], tokenizer, vocabulary, Preparation(max_length, **options))
    make(folder, plan, tokenizer)
    return Prepared(folder)


def in_memory(model: Path, data: object, max_length: int = 16, **options) -> Corpus:
    """The same rows as training reads them."""
    return tokenize(read_examples(str(data), **options), tokenizer_of(model), max_length)


def rows_of(corpus: Prepared, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids and masks (B, C, T), and which columns are present (B, C); of all rows if none are given."""
    found = corpus.locate(np.arange(len(corpus)) if rows is None else rows)
    return *corpus.gather(found), found.present
