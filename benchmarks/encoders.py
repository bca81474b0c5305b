"""Encoders as contenders (see `benchmarks.contender`): `SimCSE.encode`, sentence-transformers' and representax'.

A round encodes all of `sentences`, a JSON file with a list of strings, and its work is their number. With `save` the
embeddings are written to that file, in float32. Each contender warms up by encoding them once: that compiles. With
`single` each sentence has a call of its own, and a round notes the calls' p50 and p99 in milliseconds.
"""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Done, Round

Encode = Callable[[Sequence[str]], np.ndarray]


def ours(sentences: str, save: str, single: bool = False, **options: Any) -> Round:
    """`SimCSE.encode`; for the options see `our_encode`."""
    return _rounds(our_encode(**options), sentences, save, single)


def theirs(sentences: str, save: str, single: bool = False, **options: Any) -> Round:
    """`SentenceTransformer.encode`; for the options see `their_encode`."""
    return _rounds(their_encode(**options), sentences, save, single)


def representax(sentences: str, save: str, single: bool = False, **options: Any) -> Round:
    """representax' `embed`; for the options see `representax_encode`."""
    return _rounds(representax_encode(**options), sentences, save, single)


def our_encode(model: str, dtype: str, batch_size: int, pooler: str | None = None) -> Encode:
    """Ours: a model's name, the dtype of its products, sentences a batch, and a pooler (None: the model's own)."""
    from simcse_jax import SimCSE

    options = {} if dtype == "float32" else {"dtype": dtype}
    return SimCSE(model, pooler=pooler, batch_size=batch_size, **options).encode


def their_encode(folder: str, dtype: str, batch_size: int, backend: str = "torch") -> Encode:
    """Theirs: a folder, the dtype of the model, sentences a batch, and torch, onnx or openvino (exported in memory)."""
    import torch
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = {"export": True} if backend != "torch" else {"torch_dtype": getattr(torch, dtype)}
    if backend == "openvino":  # or it computes in bfloat16, where a processor can
        options["ov_config"] = {"INFERENCE_PRECISION_HINT": "f32"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = SentenceTransformer(folder, device=device, backend=backend, model_kwargs=options)
    return lambda sentences: encoder.encode(sentences, batch_size=batch_size)


def representax_encode(folder: str, dtype: str, batch_size: int) -> Encode:
    """representax: a folder of sentence-transformers, the dtype of its weights and products, sentences a batch.

    It pads to the longest of its lengths unless it gets others, and takes sentences as they come; sorted they pad less.
    """
    import jax.numpy as jnp
    from representax.integrations import load_sentence_transformer

    longest = json.loads((Path(folder) / "sentence_bert_config.json").read_text())["max_seq_length"]
    lengths = [*(length for length in (16, 24, 32, 48, 64, 128, 256) if length < longest), longest]
    kept = jnp.dtype(dtype)  # of the weights too: with others its layers refuse bfloat16
    encoder = load_sentence_transformer(
        folder, parameter_dtype=kept, compute_dtype=kept, sequence_length_buckets=lengths
    )

    def encode(sentences: Sequence[str]) -> np.ndarray:
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        found = encoder.embed([sentences[row] for row in order], batch_size=batch_size)
        return found[np.argsort(order)]

    return encode


def _rounds(encode: Encode, sentences: str, save: str, single: bool) -> Round:
    warnings.simplefilter("ignore")  # how many sentences are cut
    texts = json.loads(Path(sentences).read_text())
    np.save(save, np.asarray(encode(texts), np.float32))

    def do_round() -> Done:
        encode(texts)
        return Done(len(texts))

    def do_single_calls() -> Done:
        milliseconds = []
        for text in texts:
            started = time.perf_counter()
            encode([text])
            milliseconds.append(1000 * (time.perf_counter() - started))
        p50, p99 = np.percentile(milliseconds, [50, 99])
        return Done(len(texts), {"p50_ms": p50, "p99_ms": p99})

    if single:
        do_single_calls()  # other shapes
    return do_single_calls if single else do_round
