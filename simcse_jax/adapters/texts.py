"""Shared by the adapters: a model, the options of encoding, and lists of numbers instead of arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.errors import UserError
from simcse_jax.host.storage import sha256
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.quantization import SCALAR, Precision, read_ranges


class TextOptions(TypedDict, total=False):
    """How texts are encoded: the prompts of queries and of documents, and options of `SimCSE.encode`.

    None is the model's own value.
    """

    query_prompt: str | None
    document_prompt: str | None
    batch_size: int | None
    max_length: int | None
    pooler: str | None
    normalize_to_unit: bool | None
    truncate_dim: int | None
    precision: Precision
    ranges: ArrayLike | str | Path | None
    show_progress_bar: bool


OPTIONS = tuple(TextOptions.__annotations__)


def open_model(model: SimCSE | str | Path, dtype: str | None, options: TextOptions) -> SimCSE:
    """The model, loaded if it is a name, after a check that it can encode with these options."""
    check_ranges(options)
    if not isinstance(model, SimCSE):
        model = SimCSE(model, dtype="float32" if dtype is None else dtype)
    elif dtype not in (None, model.dtype):
        raise UserError(f"dtype {dtype!r:.60}: the model is loaded, and computes in {model.dtype}; leave it out")
    for encode, prompt in ((model.encode_query, "query_prompt"), (model.encode_document, "document_prompt")):
        encode([], **{**_arguments(options, prompt), "show_progress_bar": False})
    return model


def with_ranges(options: TextOptions) -> TextOptions:
    """The options with the ranges of a file as they are now, since it may change, and all embeddings need the same."""
    ranges = options.get("ranges")
    return {**options, "ranges": read_ranges(str(ranges))} if isinstance(ranges, str | Path) else options


def check_ranges(options: TextOptions) -> None:
    """Refuses int8 and uint8 without ranges, which would be those of each call: no two calls could be compared."""
    precision = options.get("precision")
    if precision in SCALAR and options.get("ranges") is None:
        raise UserError(
            f"precision {precision}: give ranges= too, so that queries and documents have the same; "
            "simcse_jax.vectors.quantization.ranges_of finds them in some embeddings"
        )


def embed_query(model: SimCSE, text: str, options: TextOptions) -> list[float]:
    """The D numbers of a query."""
    if not isinstance(text, str):
        raise UserError(f"{text!r:.60}: not a string, as a query must be")
    return model.encode_query(text, **_arguments(options, "query_prompt")).tolist()


def embed_documents(model: SimCSE, texts: Sequence[str], options: TextOptions) -> list[list[float]]:
    """The D numbers of each document, in their order."""
    if isinstance(texts, str):
        raise UserError(f"{texts!r:.60}: a string, not a list of documents")
    return model.encode_document(texts, **_arguments(options, "document_prompt")).tolist()


def plain(options: TextOptions) -> dict[str, Any]:
    """The options as JSON and YAML can hold them: paths are strings, and arrays lists."""
    ranges = options.get("ranges")
    if ranges is None or isinstance(ranges, str):
        return dict(options)
    return {**options, "ranges": str(ranges) if isinstance(ranges, Path) else np.asarray(ranges).tolist()}


def fingerprint(model: SimCSE) -> str:
    """A digest of everything that a model's embeddings depend on besides the options, in 64 hexadecimal digits."""
    about = (model.identity(), model.normalize, model.prompts, model.default_prompt_name)
    return sha256(np.frombuffer(repr(about).encode(), np.uint8))


def _arguments(options: TextOptions, prompt: str) -> dict[str, Any]:
    """The arguments of `SimCSE.encode_query` or `encode_document`; `prompt` is the option with its prompt."""
    check_ranges(options)  # again: programs set options later, too
    shared = {name: value for name, value in options.items() if not name.endswith("_prompt")}
    return {**shared, "prompt": options.get(prompt)}
