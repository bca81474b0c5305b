"""`SimCSE` as Haystack's components: an embedder of texts, for queries, and one of documents."""

import dataclasses
from pathlib import Path
from typing import Any, Unpack

from simcse_jax.adapters.texts import TextEncoder, TextOptions
from simcse_jax.errors import require
from simcse_jax.simcse import SimCSE

require("haystack", "haystack")
from haystack import Document, component, default_to_dict  # noqa: E402


@component
class SimCSETextEmbedder:
    """`SimCSETextEmbedder("runs/unsup")`: the embedding of a query."""

    def __init__(self, model: SimCSE | str | Path, **options: Unpack[TextOptions]):
        self._encoder = TextEncoder(model, **options)

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack writes it to files."""
        return default_to_dict(self, model=self._encoder.given, **self._encoder.options)

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """`embedding`, the D numbers of the text."""
        return {"embedding": self._encoder.query(text)}


@component
class SimCSEDocumentEmbedder:
    """`SimCSEDocumentEmbedder("runs/unsup")`: documents with their embeddings.

    The fields of `meta_fields_to_embed` come before a document's content, with the separator between them.
    """

    def __init__(
        self,
        model: SimCSE | str | Path,
        *,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
        **options: Unpack[TextOptions],
    ):
        self._encoder = TextEncoder(model, **options)
        self._fields, self._separator = meta_fields_to_embed or [], embedding_separator

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack writes it to files."""
        own = {"meta_fields_to_embed": self._fields, "embedding_separator": self._separator}
        return default_to_dict(self, model=self._encoder.given, **own, **self._encoder.options)

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """`documents`, copies of those given with their embeddings."""
        texts = []
        for document in documents:
            fields = [document.meta.get(name) for name in self._fields]
            parts = [str(field) for field in fields if field not in (None, "")] + [document.content or ""]
            texts.append(self._separator.join(parts))
        pairs = zip(documents, self._encoder.documents(texts), strict=True)
        return {"documents": [dataclasses.replace(document, embedding=embedding) for document, embedding in pairs]}
