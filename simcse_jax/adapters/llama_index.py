"""`SimCSE` as LlamaIndex's `BaseEmbedding`."""

import asyncio
from pathlib import Path
from typing import Any

from simcse_jax.adapters.texts import TextEncoder
from simcse_jax.errors import UserError, require
from simcse_jax.simcse import SimCSE

require("llama-index", "llama_index.core")
from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402


class SimCSEEmbedding(BaseEmbedding):
    """`SimCSEEmbedding("runs/unsup")`; takes LlamaIndex's fields and `simcse_jax.adapters.texts.TextOptions`."""

    options: dict[str, Any]
    fingerprint: str  # of the model, so that the cache of a pipeline knows one from another
    _encoder: TextEncoder = PrivateAttr()

    def __init__(self, model_name: SimCSE | str | Path, *, embed_batch_size: int = 2048, **fields: Any):
        if fields.get("embeddings_cache") is not None:
            raise UserError("embeddings_cache: knows texts alone, not their models; use an IngestionPipeline's cache")
        own = {name: fields.pop(name) for name in [*fields] if name in type(self).model_fields}
        encoder = TextEncoder(model_name, **own.pop("options", {}), **fields)
        own |= {"model_name": encoder.model.name, "options": encoder.options, "fingerprint": encoder.fingerprint()}
        super().__init__(embed_batch_size=embed_batch_size, **own)
        self._encoder = encoder

    @classmethod
    def class_name(cls) -> str:  # noqa: D102
        return "SimCSEEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._encoder.query(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._encoder.documents([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encoder.documents(texts)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)
