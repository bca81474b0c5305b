"""`SimCSE` as LangChain's `Embeddings`."""

from pathlib import Path
from typing import Unpack

from simcse_jax.adapters.texts import TextOptions, embed_documents, embed_query, open_model, with_ranges
from simcse_jax.errors import require
from simcse_jax.simcse import SimCSE

require("langchain", "langchain_core")
from langchain_core.embeddings import Embeddings  # noqa: E402


class SimCSEEmbeddings(Embeddings):
    """`SimCSEEmbeddings("runs/unsup")`, for LangChain's vector stores and whatever else takes `Embeddings`.

    Its asynchronous methods are those of LangChain, which call these in a thread.
    """

    def __init__(self, model: SimCSE | str | Path, *, dtype: str | None = None, **options: Unpack[TextOptions]):
        """Loads the model.

        Args:
          model: a `SimCSE`, or the name that its constructor takes.
          dtype: float32 or bfloat16, for a model that is given by name.
          options: see `simcse_jax.adapters.texts.TextOptions`.
        """
        self.model = open_model(model, dtype, options)
        self.options = with_ranges(options)

    def embed_query(self, text: str) -> list[float]:
        """The D numbers of a query, as `SimCSE.encode_query` gives them."""
        return embed_query(self.model, text, self.options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The D numbers of each document, as `SimCSE.encode_document` gives them."""
        return embed_documents(self.model, texts, self.options)
