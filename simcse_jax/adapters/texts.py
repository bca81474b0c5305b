"""Shared by the adapters: a model with the options of encoding, and lists of numbers instead of arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from simcse_jax.encoding.arguments import AllOptions
from simcse_jax.errors import UserError
from simcse_jax.host.storage import sha256
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.quantization import SCALAR


class TextOptions(AllOptions, total=False):
    """The options of `SimCSE.encode`, and the prompts of queries and of documents; None is the model's own value."""

    query_prompt: str | None
    document_prompt: str | None


class TextEncoder:
    """A `SimCSE`, given or loaded by its name, that encodes queries and documents with these options."""

    def __init__(self, model: SimCSE | str | Path, **options: Unpack[TextOptions]):
        if options.get("precision") in SCALAR and options.get("ranges") is None:
            raise UserError("int8 and uint8 need ranges=, the same for queries and documents")
        self.given = model if isinstance(model, SimCSE) else str(model)
        self.model, self._options = model if isinstance(model, SimCSE) else SimCSE(model), options
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

    @property
    def options(self) -> dict[str, Any]:
        """The options as JSON and YAML can hold them: ranges as a name or lists."""
        ranges = self._options.get("ranges")
        if ranges is None:
            return {**self._options}
        return {
            **self._options,
            "ranges": str(ranges) if isinstance(ranges, str | Path) else np.asarray(ranges).tolist(),
        }
