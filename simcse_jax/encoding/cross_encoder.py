"""Cross-encoders: scores of two texts that a model reads together."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float32

from simcse_jax.data.rows import is_text
from simcse_jax.data.sentences import check_sentences
from simcse_jax.encoding.arguments import check_max_length, resolve_prompt
from simcse_jax.encoding.batch_encoder import BatchEncoder
from simcse_jax.encoding.embedder import Embedder, LazyWeights, warn_of_cut
from simcse_jax.errors import UserError
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import sha256
from simcse_jax.huggingface.cross_encoder import is_cross_encoder, load_cross_encoder, reads_types
from simcse_jax.huggingface.load import ChosenPooler
from simcse_jax.huggingface.public_names import public_value
from simcse_jax.huggingface.tokenizer import Tokenizer

Pair = tuple[str, str] | list[str]


class CrossEncoder:
    """Scores pairs: `CrossEncoder("folder").predict([("Who sings?", "She sings."), ("Who sings?", "He runs.")])`.

    The model, its activation and the length at which two texts are cut together are those of sentence-transformers'
    class of this name, and so are the scores.
    """

    def __init__(
        self, name: str | Path, *, batch_size: int = 64, max_length: int | None = None, dtype: str = "float32"
    ):
        """Loads a cross-encoder; its weights move to all local devices when they are first used.

        Args:
          name: a folder in Hugging Face format, or a hub id.
          batch_size: pairs that are scored together on each device; fewer of those longer than 64 tokens.
          max_length: in tokens, of both texts with the special ones; None takes the model's own, the maximum.
          dtype: the type to compute in, float32 or bfloat16; scores are float32 with both.

        Raises:
          UserError: when it is no cross-encoder, or an argument is out of its range.
        """
        self.name, self.dtype = str(name), dtype
        model = load_cross_encoder(self.name)
        self.batch_size = batch_size  # in pairs
        self.max_length = model.max_length if max_length is None else max_length  # in tokens
        check_max_length(self.max_length, model.max_length)
        self.config = model.config
        self.num_labels = model.config.sentence_size
        assert model.pooler is not None  # a cross-encoder has its own
        tokenizer = Tokenizer(model.folder, model.config, typed=reads_types(model))
        self._weights = LazyWeights(model, tokenizer, ChosenPooler(model.pooler, use_head=False), dtype)

    @staticmethod
    def is_named(name: str) -> bool:
        """Whether a folder, or a model of the hub, says that it is a cross-encoder."""
        return is_cross_encoder(name)

    def __repr__(self) -> str:
        labels = f"{self.num_labels} label{'s' * (self.num_labels != 1)}"
        return f"CrossEncoder({self.name!r}: {self.config.model_type}, {labels}, at most {self.max_length} tokens)"

    def predict(
        self, pairs: Iterable[Pair] | Pair, *, batch_size: int | None = None, show_progress_bar: bool = False
    ) -> np.ndarray:
        """(N,) float32 scores of N pairs in their order, or (N, K) of a model with K labels; one pair gives its own.

        Pairs that are longer than the model takes are cut, the longer text first; a `UserWarning` says how many.

        Args:
          pairs: of a query and a document, say; or one pair.
          batch_size: None takes the constructor's.
          show_progress_bar: on standard error: a bar on a terminal, elsewhere a line every half minute.

        Raises:
          UserError: naming the first pair that is not two strings.
        """
        is_one = isinstance(pairs, tuple | list) and len(pairs) > 0 and all(isinstance(text, str) for text in pairs)
        batch: Any = [pairs] if is_one else pairs
        checked = _check_pairs(batch)
        with Progress(len(checked), shown=show_progress_bar) as bar:
            scores, cut = self._configured(batch_size).encode(checked, bar.advance)
        warn_of_cut(cut, self.max_length, stacklevel=3)
        results = scores[:, 0] if self.num_labels == 1 else scores
        return results[0] if is_one else results

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> list[dict[str, Any]]:
        """The documents by their score with the query, best first, each with its place, `corpus_id`, and its `score`.

        Args:
          query: a text.
          documents: texts.
          top_k: at most so many; None for all.
          return_documents: whether each has its `text`, too.
          batch_size: None takes the constructor's.
          show_progress_bar: as for `predict`.

        Raises:
          UserError: for a model with several labels, naming the document that is not a string, or an argument.
        """
        self.check_one_label("rank")
        texts = check_sentences(documents, "document")
        scores = self.predict(
            [(query, text) for text in texts], batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        order = np.argsort(-scores, kind="stable")[:top_k].tolist()
        text = {place: {"text": texts[place]} if return_documents else {} for place in order}
        return [{"corpus_id": place, "score": float(scores[place]), **text[place]} for place in order]

    def score_of_each(
        self, queries: Sequence[str], documents: Sequence[Sequence[str]], advance: Callable[[int], object] | None = None
    ) -> list[Float32[np.ndarray, " n"]]:
        """The scores of each query with its own documents; a `UserWarning` says how many pairs were cut.

        Args:
          queries: Q texts.
          documents: the texts of each.
          advance: called with the number of pairs done since the last call, after each batch.
        """
        if not queries:
            return []
        pairs = [(query, text) for query, texts in zip(queries, documents, strict=True) for text in texts]
        scores, cut = self._configured().encode(pairs, advance)
        warn_of_cut(cut, self.max_length, stacklevel=3)
        return np.split(scores[:, 0], np.cumsum([len(texts) for texts in documents])[:-1])

    def check_one_label(self, user: str) -> Self:
        """This object, if it has a single label; `user` needs one.

        Raises:
          UserError: for a model with several.
        """
        if self.num_labels != 1:
            raise UserError(f"{self.name}: has {self.num_labels} labels; {user} needs a cross-encoder with one score")
        return self

    def batch_encoder(self) -> BatchEncoder:
        """Scores batches of pairs that a caller puts together, such as a server."""
        return BatchEncoder(self._configured())

    def identity(self) -> dict[str, Any]:
        """All that the scores depend on."""
        model, tokenizer = self._weights.model, self._weights.tokenizer
        about = repr((model.config, self.max_length, model.pooler, model.config.modules, self._prompt, tokenizer.typed))
        about += model.config.identity
        arrays = [np.asarray(value) for _, value in sorted(model.params.items())]
        digest = sha256(np.frombuffer(about.encode() + tokenizer.content(), np.uint8), *arrays)
        return {"name": public_value("model.init_from", self.name), "dtype": self.dtype, "sha256": digest}

    @property
    def _prompt(self) -> str:
        """The text before the first of two."""
        settings = self._weights.model.settings
        return resolve_prompt(settings.prompts, settings.default_prompt_name, None, None)

    def _configured(self, batch_size: int | None = None) -> Embedder:
        """The model on all local devices."""
        together = (batch_size or self.batch_size) * len(jax.local_devices())
        settings: dict[str, Any] = {"batch_size": together, "max_length": self.max_length, "prompt": self._prompt}
        return dataclasses.replace(self._weights.embedder, **settings)


def _check_pairs(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    """Pairs of texts, as tuples."""
    checked = []
    for row, pair in enumerate(pairs):
        texts = tuple(pair) if isinstance(pair, tuple | list) or getattr(pair, "ndim", 0) == 1 else ()
        if len(texts) != 2 or not all(isinstance(text, str) and is_text(text) for text in texts):
            raise UserError(f"pair {row} is {pair!r:.60}, not two strings")
        checked.append((texts[0], texts[1]))
    return checked
