"""`SimCSE` as Haystack's components: an embedder of texts, for queries, and one of documents."""

import dataclasses
from pathlib import Path
from typing import Any, Unpack

from simcse_jax.adapters.texts import TextEncoder, TextOptions, plain
from simcse_jax.errors import UserError, require
from simcse_jax.simcse import SimCSE

require("haystack", "haystack")
from haystack import Document, component, default_to_dict  # noqa: E402


class _Embedder:
    """A model that is loaded when it is needed, and its options, those of `TextOptions`."""

    def __init__(self, model: SimCSE | str | Path, **options: Unpack[TextOptions]):
        self._model, self._options = model, options
        self._encoder: TextEncoder | None = None

    def warm_up(self) -> None:
        """Loads the model."""
        self._encoder = self._encoder or TextEncoder(self._model, **self._options)

    @property
    def encoder(self) -> TextEncoder:
        """The model, loaded."""
        self.warm_up()
        assert self._encoder is not None
        return self._encoder

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack writes it to files."""
        if isinstance(self._model, SimCSE):
            raise UserError(f"{type(self).__name__}: was given a loaded model, which no file can hold; give its name")
        return default_to_dict(self, model=str(self._model), **plain(self._options))


@component
class SimCSETextEmbedder(_Embedder):
    """`SimCSETextEmbedder("runs/unsup")`: the embedding of a query."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """`embedding`, the D numbers of the text."""
        return {"embedding": self.encoder.query(text)}


@component
class SimCSEDocumentEmbedder(_Embedder):
    """`SimCSEDocumentEmbedder("runs/unsup")`: documents with their embeddings."""

    def __init__(
        self,
        model: SimCSE | str | Path,
        *,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
        **options: Unpack[TextOptions],
    ):
        """Loads nothing yet; metadata fields come before a document's content, with the separator between them."""
        _Embedder.__init__(self, model, **options)
        self._meta, self._separator = list(meta_fields_to_embed or []), embedding_separator

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack writes it to files."""
        content = _Embedder.to_dict(self)
        content["init_parameters"] |= {"meta_fields_to_embed": self._meta, "embedding_separator": self._separator}
        return content

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """`documents`, copies of those given with their embeddings."""
        pairs = zip(documents, self.encoder.documents([self._text(document) for document in documents]), strict=True)
        return {"documents": [dataclasses.replace(document, embedding=embedding) for document, embedding in pairs]}

    def _text(self, document: Document) -> str:
        fields = [document.meta.get(name) for name in self._meta]
        return self._separator.join(
            [str(field) for field in fields if field not in (None, "")] + [document.content or ""]
        )
