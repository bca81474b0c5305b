"""Shared by the adapters: a model with the options of encoding, and lists of numbers instead of arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.errors import UserError
from simcse_jax.host.storage import sha256
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.quantization import SCALAR, Precision


class TextOptions(TypedDict, total=False):
    """The prompts of queries and of documents, and options of `SimCSE.encode`; None is the model's own value."""

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


class TextEncoder:
    """A `SimCSE`, given or loaded by its name, that encodes queries and documents with these options."""

    def __init__(self, model: SimCSE | str | Path, **options: Unpack[TextOptions]):
        if options.get("precision") in SCALAR and options.get("ranges") is None:
            raise UserError("int8 and uint8 need ranges=, the same for queries and documents")
        self.model = model if isinstance(model, SimCSE) else SimCSE(model)
        shared: dict[str, Any] = {name: value for name, value in options.items() if not name.endswith("_prompt")}
        self._of_queries = {**shared, "prompt": options.get("query_prompt")}
        self._of_documents = {**shared, "prompt": options.get("document_prompt")}
        self.model.encode_query([], **self._of_queries)  # a wrong option is found here
        self.model.encode_document([], **self._of_documents)

    def query(self, text: str) -> list[float]:
        """The D numbers of a query, as `SimCSE.encode_query` gives them."""
        return self.model.encode_query(text, **self._of_queries).tolist()

    def documents(self, texts: Sequence[str]) -> list[list[float]]:
        """The D numbers of each document, as `SimCSE.encode_document` gives them."""
        return self.model.encode_document(texts, **self._of_documents).tolist()

    def fingerprint(self) -> str:
        """A digest of the model and of its settings."""
        model = self.model
        about = (model.identity(), model.normalize, model.prompts, model.default_prompt_name)
        return sha256(np.frombuffer(repr(about).encode(), np.uint8))


def plain(options: TextOptions) -> TextOptions:
    """The options as JSON and YAML can hold them: ranges as a name or lists."""
    ranges = options.get("ranges")
    if ranges is None or isinstance(ranges, str):
        return options
    return {**options, "ranges": str(ranges) if isinstance(ranges, Path) else np.asarray(ranges).tolist()}
