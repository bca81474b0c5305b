"""`SimCSE` as LlamaIndex's `BaseEmbedding`."""

import asyncio
import copy
from pathlib import Path
from typing import Any, cast

from simcse_jax.adapters.texts import (
    OPTIONS,
    TextOptions,
    embed_documents,
    embed_query,
    fingerprint,
    open_model,
    plain,
    with_ranges,
)
from simcse_jax.errors import UserError, nearest, require
from simcse_jax.simcse import SimCSE

require("llama-index", "llama_index.core")
from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402


class SimCSEEmbedding(BaseEmbedding):
    """`SimCSEEmbedding("runs/unsup")`, for LlamaIndex's indexes, retrievers and ingestion pipelines.

    `fingerprint` belongs to the fields that LlamaIndex writes: its caches then know one model from another, and
    `from_dict` refuses another model of the same name.
    """

    dtype: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    batch_size: int | None = None
    max_length: int | None = None
    pooler: str | None = None
    normalize_to_unit: bool | None = None
    truncate_dim: int | None = None
    precision: str = "float32"
    ranges: str | list[list[float]] | None = None
    show_progress_bar: bool = False
    fingerprint: str = ""
    _model: SimCSE = PrivateAttr()

    def __init__(self, model_name: SimCSE | str | Path, *, embed_batch_size: int = 2048, **fields: Any):
        """Loads the model, or takes a given one as it is now: later changes of its attributes have no effect.

        Args:
          model_name: a `SimCSE`, or the name that its constructor takes.
          embed_batch_size: texts that LlamaIndex hands over together; `batch_size` are those that a device encodes
            together.
          fields: dtype, float32 or bfloat16, for a model that is given by name; the options of
            `simcse_jax.adapters.texts.TextOptions`; and LlamaIndex's own.

        Raises:
          TypeError: for a field that there is not.
        """
        model_fields = type(self).model_fields
        for name in fields:
            if name not in model_fields:
                raise TypeError(f"SimCSEEmbedding has no argument {name}=; near it is {nearest(name, model_fields)}=")
        options = cast(TextOptions, {name: fields[name] for name in OPTIONS if name in fields})
        _refuse_cache_by_text(fields.get("embeddings_cache"))
        model = copy.copy(open_model(model_name, fields.get("dtype"), options))
        options = with_ranges(options)
        model.prompts = dict(model.prompts)
        digest = fingerprint(model)
        if fields.get("fingerprint") not in (None, "", digest):
            raise UserError(
                f"{model.name}: is not the model that these settings were written for; leave out fingerprint"
            )
        fields |= {**plain(options), "fingerprint": digest}
        super().__init__(model_name=model.name, embed_batch_size=embed_batch_size, **fields)
        self._model = model

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex writes."""
        return "SimCSEEmbedding"

    def _options(self) -> TextOptions:
        _refuse_cache_by_text(self.embeddings_cache)
        return cast(TextOptions, {name: getattr(self, name) for name in OPTIONS})

    def _get_query_embedding(self, query: str) -> list[float]:
        return embed_query(self._model, query, self._options())

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return embed_documents(self._model, texts, self._options())

    # In threads: the loop goes on meanwhile.

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _refuse_cache_by_text(cache: object) -> None:
    """Refuses LlamaIndex's cache whose keys are texts alone."""
    if cache is not None:
        raise UserError(
            "embeddings_cache: LlamaIndex finds embeddings there by their text alone, so a query would have a "
            "document's, and this model another one's; leave it out, and give an IngestionPipeline its cache"
        )
