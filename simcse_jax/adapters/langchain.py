"""`SimCSE` as LangChain's `Embeddings`."""

from pathlib import Path
from typing import Unpack

from simcse_jax.adapters.texts import TextEncoder, TextOptions
from simcse_jax.errors import require
from simcse_jax.simcse import SimCSE

require("langchain", "langchain_core")
from langchain_core.embeddings import Embeddings  # noqa: E402


class SimCSEEmbeddings(Embeddings):
    """`SimCSEEmbeddings("runs/unsup")`; options are those of `simcse_jax.adapters.texts.TextOptions`."""

    def __init__(self, model: SimCSE | str | Path, **options: Unpack[TextOptions]):
        self._encoder = TextEncoder(model, **options)

    def embed_query(self, text: str) -> list[float]:
        """The D numbers of a query."""
        return self._encoder.query(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The D numbers of each document."""
        return self._encoder.documents(texts)
