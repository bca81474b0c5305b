"""The part of the class SimCSE that encodes tokens."""

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from simcse_jax.data.sentences import check_sentences
from simcse_jax.encoding.arguments import names_ours
from simcse_jax.encoding.embedder import check_finite, warn_of_cut
from simcse_jax.encoding.tokens import TokenEncoder
from simcse_jax.host.progress import Progress


class TokenEmbeddings(NamedTuple):
    """A sentence's tokens, the special ones around it included."""

    tokens: list[str]  # T, as in the vocabulary: `##ing`, `Ġthe`
    embeddings: np.ndarray  # (T, D) float32


class EncodedTokens(NamedTuple):
    """Sentences in their order, and the number of those that were cut."""

    sentences: list[TokenEmbeddings]
    cut: int


class Tokenized(abc.ABC):
    """What needs nothing of a model but its token encoder."""

    max_length: int

    @abc.abstractmethod
    def token_encoder(self, max_length: int | None = None, batch_size: int | None = None) -> TokenEncoder:
        """The token embeddings of every layer."""

    @abc.abstractmethod
    def prompt_of(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The text before each sentence."""

    @names_ours
    def encode_tokens(
        self,
        sentences: str | Iterable[str],
        *,
        with_tokens: bool = False,
        batch_size: int | None = None,
        max_length: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress_bar: bool = False,
    ) -> np.ndarray | TokenEmbeddings | list[np.ndarray] | list[TokenEmbeddings]:
        """The last layer's embedding of each token: per sentence (T, D) float32, without padding; a string gives one.

        They are what sentence-transformers' `output_value="token_embeddings"` gives: before pooler, head and modules,
        with the special tokens, and those of a prompt.

        Args:
          sentences, batch_size, max_length, prompt, prompt_name, show_progress_bar: see `encode`.
          with_tokens: gives `TokenEmbeddings`, which have the tokens' texts too.

        Raises:
          UserError: as `encode`, and for word vectors, which have no layers.
        """
        texts = check_sentences([sentences] if isinstance(sentences, str) else sentences)
        options = {"batch_size": batch_size, "max_length": max_length}
        before = {"prompt": prompt, "prompt_name": prompt_name}
        with Progress(len(texts), shown=show_progress_bar) as bar:
            found, cut = _encode(self.token_encoder(**options), texts, self.prompt_of(**before), bar.advance)
        warn_of_cut(cut, max_length or self.max_length, stacklevel=4)
        results: list[TokenEmbeddings] | list[np.ndarray] = found if with_tokens else [one.embeddings for one in found]
        return results[0] if isinstance(sentences, str) else results

    def encode_tokens_counted(
        self,
        sentences: Iterable[str],
        *,
        max_length: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        advance: Callable[[int], object] | None = None,
    ) -> EncodedTokens:
        """Like `encode_tokens` with tokens, but returns how many sentences were cut instead of warning.

        Args:
          sentences: an iterable of strings.
          max_length, prompt, prompt_name: see `encode`.
          advance: called with the number of sentences done since the last call.
        """
        texts = check_sentences(sentences)
        return _encode(self.token_encoder(max_length), texts, self.prompt_of(prompt, prompt_name), advance)


def _encode(
    encoder: TokenEncoder, texts: list[str], prompt: str, advance: Callable[[int], object] | None
) -> EncodedTokens:
    prompted = [prompt + text for text in texts] if prompt else texts
    ids, cut = encoder.tokenizer.tokenize(prompted, encoder.max_length)
    embeddings: list[np.ndarray] = [np.empty(0)] * len(texts)
    for row, states in dataclasses.replace(encoder, last_only=True).hidden_states(prompted):
        embeddings[row] = states[0, : len(ids[row])].copy()  # a view would keep the padding
        check_finite(embeddings[row], [texts[row]] * len(ids[row]))
        if advance:
            advance(1)
    found = [
        TokenEmbeddings([encoder.token(number) for number in own.tolist()], rows)
        for own, rows in zip(ids, embeddings, strict=True)
    ]
    return EncodedTokens(found, len(cut))
