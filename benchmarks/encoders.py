"""Encoders as contenders (see `benchmarks.contender`): `SimCSE.encode` and sentence-transformers' `encode`.

A round encodes all of `sentences`, a JSON file with a list of strings, and its work is their number. With `save` the
embeddings are written to that file, in float32. Each contender warms up by encoding them once: that compiles.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Done, Round

Encode = Callable[[Sequence[str]], np.ndarray]


def ours(sentences: str, save: str, **options: Any) -> Round:
    """`SimCSE.encode`; for the options see `our_encode`."""
    return _rounds(our_encode(**options), sentences, save)


def theirs(sentences: str, save: str, **options: Any) -> Round:
    """`SentenceTransformer.encode`; for the options see `their_encode`."""
    return _rounds(their_encode(**options), sentences, save)


def our_encode(model: str, dtype: str, batch_size: int) -> Encode:
    """Ours: a model's name, the dtype of its products, sentences a batch."""
    from simcse_jax import SimCSE

    options = {} if dtype == "float32" else {"dtype": dtype}
    return SimCSE(model, batch_size=batch_size, **options).encode


def their_encode(folder: str, dtype: str, batch_size: int, backend: str = "torch") -> Encode:
    """Theirs: a folder, the dtype of the model, sentences a batch, torch or onnx (exported here, in memory)."""
    import torch
    from sentence_transformers import SentenceTransformer

    options = {"export": True} if backend == "onnx" else {"torch_dtype": getattr(torch, dtype)}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = SentenceTransformer(folder, device=device, backend=backend, model_kwargs=options)
    return lambda sentences: encoder.encode(sentences, batch_size=batch_size)


def _rounds(encode: Encode, sentences: str, save: str) -> Round:
    warnings.simplefilter("ignore")  # how many sentences are cut
    texts = json.loads(Path(sentences).read_text())
    np.save(save, np.asarray(encode(texts), np.float32))

    def do_round() -> Done:
        encode(texts)
        return Done(len(texts))

    return do_round
