"""`SimCSE` as Haystack's components: an embedder of texts, for queries, and one of documents."""

import dataclasses
from pathlib import Path
from typing import Any, Self, Unpack

from simcse_jax.adapters.texts import TextOptions, check_ranges, embed_documents, embed_query, open_model, plain
from simcse_jax.errors import UserError, require
from simcse_jax.simcse import SimCSE

require("haystack", "haystack")
from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402


class _Embedder:
    """A model that is loaded when it is needed, and its options."""

    def __init__(self, model: SimCSE | str | Path, *, dtype: str | None = None, **options: Unpack[TextOptions]):
        """Loads nothing yet.

        Args:
          model: the name that `SimCSE`'s constructor takes; or a `SimCSE`, which several components can share, but
            pipelines with it cannot be written to a file.
          dtype: float32 or bfloat16, for a model that is given by name.
          options: see `simcse_jax.adapters.texts.TextOptions`.
        """
        check_ranges(options)
        self.model = model
        self.dtype = dtype
        self.options = options
        self._loaded: SimCSE | None = None

    def warm_up(self) -> SimCSE:
        """The model, loaded unless it is already."""
        if self._loaded is None:
            self._loaded = open_model(self.model, self.dtype, self.options)
        return self._loaded

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack writes it to files."""
        return default_to_dict(self, **self._arguments())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The component that `to_dict` wrote."""
        return default_from_dict(cls, data)

    def _arguments(self) -> dict[str, Any]:
        if isinstance(self.model, SimCSE):
            raise UserError(f"{type(self).__name__}: was given a loaded model, which no file can hold; give its name")
        return {"model": str(self.model), "dtype": self.dtype, **plain(self.options)}


@component
class SimCSETextEmbedder(_Embedder):
    """`SimCSETextEmbedder("runs/unsup")`: the embedding of a query."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """`embedding`, the D numbers of the text, as `SimCSE.encode_query` gives them."""
        return {"embedding": embed_query(self.warm_up(), text, self.options)}


@component
class SimCSEDocumentEmbedder(_Embedder):
    """`SimCSEDocumentEmbedder("runs/unsup")`: documents with their embeddings."""

    def __init__(
        self,
        model: SimCSE | str | Path,
        *,
        dtype: str | None = None,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
        **options: Unpack[TextOptions],
    ):
        """Loads nothing yet.

        Args:
          model, dtype, options: see `SimCSETextEmbedder`.
          meta_fields_to_embed: fields of a document's metadata that come before its content, where it has them.
          embedding_separator: between them.
        """
        if isinstance(meta_fields_to_embed, str):  # its letters would be the fields, which no document has
            raise UserError(f"meta_fields_to_embed={meta_fields_to_embed!r:.60}: a string; give a list of names")
        if not isinstance(embedding_separator, str):
            raise UserError(f"embedding_separator={embedding_separator!r:.60}: not a string")
        _Embedder.__init__(self, model, dtype=dtype, **options)
        self.meta_fields_to_embed = list(meta_fields_to_embed or [])
        self.embedding_separator = embedding_separator

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """`documents`, copies of those given with their embeddings, as `SimCSE.encode_document` gives them."""
        if isinstance(documents, Document):
            raise UserError("documents is one Document; give a list")
        texts = [self._text(row, document) for row, document in enumerate(documents)]
        embeddings = embed_documents(self.warm_up(), texts, self.options)
        pairs = zip(documents, embeddings, strict=True)
        return {"documents": [dataclasses.replace(document, embedding=embedding) for document, embedding in pairs]}

    def _text(self, row: int, document: Document) -> str:
        if not isinstance(document, Document):
            raise UserError(f"document {row} is {document!r:.60}, not a Document")
        fields = [document.meta.get(name) for name in self.meta_fields_to_embed]
        parts = [str(value) for value in fields if value not in (None, "")]
        return self.embedding_separator.join([*parts, document.content or ""])

    def _arguments(self) -> dict[str, Any]:
        arguments = {"meta_fields_to_embed": self.meta_fields_to_embed, "embedding_separator": self.embedding_separator}
        return {**_Embedder._arguments(self), **arguments}
