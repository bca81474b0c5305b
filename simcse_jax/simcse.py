"""The class that people use a trained model with."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.data.sentences import check_sentences, read_sentences
from simcse_jax.encoding.arguments import (
    AllOptions,
    EncodeOptions,
    check_max_length,
    check_pooler,
    check_truncation,
    embeddings_or_sentences,
    resolve_prompt,
    with_prompt_of,
)
from simcse_jax.encoding.batch_encoder import BatchEncoder
from simcse_jax.encoding.embedder import Embedder, Encoded, LazyWeights, check_finite, warn_of_cut
from simcse_jax.errors import UserError, no_such
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import local_path, sha256
from simcse_jax.huggingface import hub
from simcse_jax.huggingface.load import ChosenPooler, Pretrained, choose_pooler, choose_pooler_and_warn
from simcse_jax.huggingface.public_names import public_value
from simcse_jax.huggingface.sentence_transformers import DOCUMENT_PROMPTS
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.index import folder as index_folder
from simcse_jax.index.identity import ModelIdentity, check_maker, check_queries
from simcse_jax.index.index import Index, Result, sharing_copy
from simcse_jax.index.lance import LanceIndex
from simcse_jax.index.options import Backend, SearchOptions, check_search
from simcse_jax.index.placed import Storage
from simcse_jax.models.config import SIMILARITIES
from simcse_jax.models.head import PREFIX
from simcse_jax.models.modules import PREFIX as MODULES
from simcse_jax.runs import exporting
from simcse_jax.runs.card_fields import CardFields, card_fields
from simcse_jax.runs.loading import load_model
from simcse_jax.vectors.quantization import (
    SCALAR,
    Precision,
    chosen_ranges,
    quantize,
    read_ranges,
    warn_of_few,
)
from simcse_jax.vectors.similarity import similarities

Several = list[str] | tuple[str, ...]
Texts = str | Iterable[str]
Queries = Texts | ArrayLike | Path
TextSource = Iterable[str] | str | Path
INDEXED_AT_ONCE = 1 << 17  # sentences, so that memory does not hold the embeddings of a large corpus twice


class TokenEmbeddings(NamedTuple):
    """A sentence's tokens, the special ones around it included."""

    tokens: list[str]  # T, as in the vocabulary: `##ing`, `Ġthe`
    embeddings: np.ndarray  # (T, D) float32


class EncodedTokens(NamedTuple):
    """Sentences in their order, and the number of those that were cut."""

    sentences: list[TokenEmbeddings]
    cut: int


class SimCSE:
    """A sentence encoder: `SimCSE("runs/my-run").encode(["A sentence.", "Another one."])`.

    `prompts`, `default_prompt_name`, `truncate_dim` and `similarity_fn_name` come from the files of
    sentence-transformers' models, and mean the same as there.
    """

    truncate_dim: int | None
    index: Index | LanceIndex | None

    def __init__(
        self,
        name: str | Path,
        *,
        pooler: str | None = None,
        num_layers: int = 0,
        batch_size: int = 64,
        dtype: str = "float32",
        truncate_dim: int | None = None,
    ):
        """Loads a model onto all local devices.

        Args:
          name: a folder in Hugging Face format, a hub id, `package:NAME`, or a workdir of ours, which is its best
            checkpoint; "WORKDIR@step=200" is that of step 200, "WORKDIR@step=last" the latest one; or `glove:FILE`.
          pooler: None takes the model's own.
          num_layers: keep the first n layers; 0 keeps all.
          batch_size: sentences encoded together on each device; fewer of those longer than 64 tokens.
          dtype: the type to compute in, float32 or bfloat16; embeddings are float32 with both.
          truncate_dim: embeddings keep so many of their elements; None follows the model's files.
        """
        check_pooler(pooler)
        model = load_model(str(name), num_layers)
        self._set_up(str(name), model, model.tokenizer, choose_pooler_and_warn(model, pooler, stacklevel=3), dtype)
        self.batch_size = batch_size
        if truncate_dim is not None:
            self._configured(truncate_dim=truncate_dim)  # checks it
            self.truncate_dim = truncate_dim

    def _set_up(self, name: str, model: Pretrained, tokenizer: Tokenizer, chosen: ChosenPooler, dtype: str) -> None:
        self.name = name
        self.index = None
        self._digests: dict[str, str] = {}  # of `identity`, by the settings that can change: weights are read once
        self.pooler = chosen.pooler
        self.own_pooler = model.pooler  # None where its files ask for one that this encoder lacks
        self.config = model.config
        self.max_length = model.max_length  # in tokens
        self.normalize = model.normalize  # whether its files ask for embeddings of unit length
        self.dtype = dtype
        settings = model.settings
        self.prompts = dict(settings.prompts)  # texts to put before sentences, by name
        self.default_prompt_name = settings.default_prompt_name  # the one that encode uses; None: none
        self.truncate_dim = settings.truncate_dim  # embeddings keep so many elements; None: all
        self.similarity_fn_name = settings.similarity
        self._weights = LazyWeights(dataclasses.replace(model, language_model=None), tokenizer, chosen, dtype)

    def __getstate__(self) -> dict[str, Any]:
        # Without devices and compiled programs, which belong to this process.
        fields = {name: value for name, value in vars(self).items() if name not in ("_weights", "_digests")}
        model = dataclasses.replace(self._model, params=jax.tree.map(np.asarray, self._model.params))
        return {"own": fields, "model": model, "tokenizer": self._weights.tokenizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fields = state["own"]
        chosen = choose_pooler(state["model"], fields["pooler"])
        self._set_up(fields["name"], state["model"], state["tokenizer"], chosen, fields["dtype"])
        vars(self).update(fields)

    __copy__ = sharing_copy

    @property
    def _model(self) -> Pretrained:
        return self._weights.model

    @property
    def _embedder(self) -> Embedder:
        return self._weights.embedder

    def __repr__(self) -> str:
        head = " with head" if self.use_head else ""
        shape = f"{self.config.num_layers} layers, dimension {self.dimension}, at most {self.max_length} tokens"
        return f"SimCSE({self.name!r}: {self.config.model_type}, {shape}, pooler {self.pooler}{head}, {self.dtype})"

    def __call__(self, sentences: str | Iterable[str]) -> np.ndarray:
        """`encode` with the constructor's options, so that evaluators can take a model as their `embed`."""
        return self.encode(sentences)

    @property
    def max_seq_length(self) -> int:
        """sentence-transformers' name for `max_length`, refused here: setting it would have no effect."""
        raise AttributeError("SimCSE has no attribute max_seq_length; it is called max_length, and can be set")

    @property
    def use_head(self) -> bool:
        """Whether the model's head comes after the pooler."""
        return choose_pooler(self._model, self.pooler).use_head

    @property
    def dimension(self) -> int:
        """The number of elements of an embedding."""
        return self._configured().dimension

    @property
    def num_parameters(self) -> int:
        """How many numbers the weights have, those of a language model's head left out."""
        return sum(array.size for array in self._model.params.values())

    @property
    def card(self) -> dict[str, Any]:
        """The fields of its model card that are known: `license`, `base_model`, `datasets` …; a run has them too."""
        return exporting.card_front_matter(self._model)

    @property
    def tokens(self) -> Embedder:
        """`token_encoder` with the model's own maximum length."""
        return self.token_encoder()

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = None,
        normalize_to_unit: bool | None = None,
        max_length: int | None = None,
        pooler: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        ranges: ArrayLike | str | Path | None = None,
        show_progress_bar: bool = False,
    ) -> np.ndarray:
        """(N, D) float32 embeddings in the order given; one string gives (D,), no sentences (0, D).

        Sentences longer than the model takes are cut; a `UserWarning` says how many.

        Args:
          sentences: a string, any iterable of strings, or a column of a table; the empty string has an embedding
            too.
          batch_size: None takes the constructor's.
          normalize_to_unit: whether embeddings have length 1; None follows the model's files.
          max_length: in tokens, with the two special ones; None takes the model's own, which is also the maximum.
          pooler: None takes the constructor's. Another one than the model's own leaves out the modules after it.
          prompt: text to put before each sentence.
          prompt_name: its name in `prompts`; None takes the model's `default_prompt_name`.
          truncate_dim: keeps so many elements, after all modules; None takes the model's own. Only
            `normalize_to_unit=True` gives what is left unit length.
          precision: int8 or uint8, a byte an element; binary or ubinary, a bit an element, eight of them a byte; as
            sentence-transformers has them (`simcse_jax.vectors.quantization`).
          ranges: for int8 and uint8, the smallest and the largest value of each element, (2, D), or a file with them
            (`read_ranges` there); None takes those of these embeddings. Only equal ranges can be compared.
          show_progress_bar: on standard error: a bar on a terminal, elsewhere a line every half minute.

        Raises:
          UserError: naming the first sentence that is not a string, or the argument that is out of its range.
        """
        chosen = self._configured(
            batch_size=batch_size,
            normalize_to_unit=normalize_to_unit,
            max_length=max_length,
            pooler=pooler,
            prompt=prompt,
            prompt_name=prompt_name,
            truncate_dim=truncate_dim,
        )
        texts = check_sentences([sentences] if isinstance(sentences, str) else sentences)
        checked = chosen_ranges(precision, ranges, chosen.dimension, len(texts))
        with Progress(len(texts), shown=show_progress_bar) as bar:
            embeddings, cut = chosen.encode(texts, bar.advance)
        warn_of_cut(cut, chosen.max_length, stacklevel=3)
        if precision in SCALAR and checked is None:
            warn_of_few(len(texts), stacklevel=3)
        codes = quantize(embeddings, precision, checked)
        return codes[0] if isinstance(sentences, str) else codes

    def encode_query(self, sentences: str | Iterable[str], **options: Unpack[AllOptions]) -> np.ndarray:
        """`encode` with the model's prompt "query", unless another is given."""
        return self.encode(sentences, **with_prompt_of(options, self.prompts, "query"))

    def encode_document(self, sentences: str | Iterable[str], **options: Unpack[AllOptions]) -> np.ndarray:
        """`encode` with the model's prompt "document", "passage" or "corpus", the first that it has, or one given."""
        return self.encode(sentences, **with_prompt_of(options, self.prompts, *DOCUMENT_PROMPTS))

    def encode_counted(
        self,
        sentences: Iterable[str],
        *,
        advance: Callable[[int], object] | None = None,
        **options: Unpack[EncodeOptions],
    ) -> Encoded:
        """Like `encode`, but returns how many sentences were cut instead of warning.

        `advance` is called with the number of sentences done since the last call, after each batch.
        """
        return self._configured(**options).encode(check_sentences(sentences), advance)

    def _configured(
        self,
        batch_size: int | None = None,
        normalize_to_unit: bool | None = None,
        max_length: int | None = None,
        pooler: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
    ) -> Embedder:
        """The embedder; an option that is not None replaces the model's own value."""
        check_pooler(pooler)
        pooler, use_head = choose_pooler(self._model, self.pooler if pooler is None else pooler)
        length = self.max_length if max_length is None else max_length
        check_max_length(length, min(self.max_length, self.config.max_length))
        embedder = dataclasses.replace(
            self._embedder,
            pooler=pooler,
            use_head=use_head,
            max_length=length,
            batch_size=(self.batch_size if batch_size is None else batch_size) * len(jax.local_devices()),
            normalize=self.normalize if normalize_to_unit is None else normalize_to_unit,
            prompt=self.prompt_of(prompt, prompt_name),
            modules=self.config.modules if pooler == self.own_pooler else (),
        )
        check_truncation(truncate_dim, embedder.dimension)
        size = self.truncate_dim if truncate_dim is None else truncate_dim
        if size is None or size >= embedder.dimension:
            return embedder
        # As in sentence-transformers: the model's own module Normalize comes before the cut, the caller's wish after.
        return embedder.truncated(int(size), normalized_first=embedder.normalize and normalize_to_unit is None)

    def prompt_of(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The text that `encode` puts before each sentence with these arguments; empty: none."""
        return resolve_prompt(self.prompts, self.default_prompt_name, prompt, prompt_name)

    def token_encoder(self, max_length: int | None = None, batch_size: int | None = None) -> Embedder:
        """What gives the tokens' hidden states in every layer, for `simcse_jax.evaluation.analysis`.

        Args:
          max_length, batch_size: see `encode`.
        """
        self._model.check_layers("an analysis of tokens")
        return self._configured(max_length=max_length, batch_size=batch_size)

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
        with Progress(len(texts), shown=show_progress_bar) as bar:
            encoded, cut = self.encode_tokens_counted(
                texts,
                max_length=max_length,
                batch_size=batch_size,
                prompt=prompt,
                prompt_name=prompt_name,
                advance=bar.advance,
            )
        warn_of_cut(cut, max_length or self.max_length, stacklevel=3)
        results: list[Any] = encoded if with_tokens else [of.embeddings for of in encoded]
        return results[0] if isinstance(sentences, str) else results

    def encode_tokens_counted(
        self,
        sentences: Iterable[str],
        *,
        max_length: int | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        advance: Callable[[int], object] = lambda done: None,
    ) -> EncodedTokens:
        """Like `encode_tokens` with tokens, but returns how many sentences were cut instead of warning.

        `advance` is called with the number of sentences done since the last call; see `encode` for the others.
        """
        texts, encoder = check_sentences(sentences), self.token_encoder(max_length, batch_size)
        before = self.prompt_of(prompt, prompt_name)
        prompted = [before + text for text in texts]
        ids, cut = encoder.tokenizer.tokenize(prompted, encoder.max_length)
        embeddings: list[np.ndarray] = [np.empty(0)] * len(texts)
        for row, states in dataclasses.replace(encoder, last_only=True).hidden_states(prompted):
            embeddings[row] = states[0, : len(ids[row])].copy()  # a view would keep the padding
            check_finite(embeddings[row], [texts[row]] * len(ids[row]))
            advance(1)
        tokens = [[encoder.token(number) for number in sentence.tolist()] for sentence in ids]
        return EncodedTokens(list(map(TokenEmbeddings, tokens, embeddings)), len(cut))

    def batch_encoder(self, **options: Unpack[EncodeOptions]) -> BatchEncoder:
        """Encodes batches that a caller puts together, such as a server; `options` are those of `encode`."""
        return BatchEncoder(self._configured(**options))

    def identity(self) -> ModelIdentity:
        """All that the embeddings depend on: indexes and half-encoded files belong to it."""
        embedder = self._configured(**with_prompt_of(EncodeOptions(), self.prompts, *DOCUMENT_PROMPTS))
        settings = repr((self.config, self.max_length))
        more = self.config.identity
        if embedder.modules or not embedder.include_prompt:
            more += repr((embedder.modules, embedder.include_prompt))
        if self.normalize != self._model.normalize and self.similarity_fn_name != "cosine":  # of directions alone
            more += repr(self.normalize)
        read = f"{settings} {more} {self.use_head}"
        if read not in self._digests:
            params = self._model.without_modules().params
            arrays = [params[name] for name in sorted(params) if self.use_head or not name.startswith(PREFIX)]
            if embedder.modules or not embedder.include_prompt:
                arrays += [value for name, value in sorted(self._model.params.items()) if name.startswith(MODULES)]
            about = settings.encode() + embedder.tokenizer.content() + more.encode()
            self._digests[read] = sha256(np.frombuffer(about, np.uint8), *map(np.asarray, arrays))
        return ModelIdentity(
            public_value("model.init_from", self.name),  # without its path on this machine
            self.pooler,
            self.use_head,
            embedder.dimension,
            self._digests[read],
            self.dtype,
            self.similarity_fn_name,
            embedder.prompt,
        )

    @overload
    def similarity(self, a: str, b: str) -> float: ...
    @overload
    def similarity(self, a: Several, b: Texts | ArrayLike) -> np.ndarray: ...
    @overload
    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> np.ndarray | float: ...
    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> np.ndarray | float:
        """Cosines, (len(a), len(b)) float32, or what `similarity_fn_name` names; distances are negative.

        As in the SimCSE authors' package, one string or one embedding for `a` gives (len(b),), one for `a` and one for
        `b` give a number, and one for `b` alone gives (len(a), 1). Sentences are encoded by `encode`.

        Args:
          a, b: strings, or embeddings of this model, (N, D) or (D,): arrays of NumPy or JAX, PyTorch tensors, or lists
            of numbers.

        Raises:
          UserError: for a mix of sentences and numbers, or embeddings that are not of the model's size.
        """
        first, second = self._vectors(a, self.encode), self._vectors(b, self.encode)
        scores = similarities(np.atleast_2d(first), np.atleast_2d(second), self.similarity_fn_name)
        if first.ndim == 1:
            return float(scores[0, 0]) if second.ndim == 1 else scores[0]
        return scores

    def _vectors(
        self, data: Texts | ArrayLike, encode: Callable[..., np.ndarray], kind: str = "sentence"
    ) -> np.ndarray:
        """Embeddings as given, or of the sentences given; `kind` is the word for a sentence in errors."""
        vectors = embeddings_or_sentences(data, self.dimension)
        if isinstance(vectors, np.ndarray):
            return vectors
        return encode(vectors if isinstance(vectors, str) else check_sentences(vectors, kind))

    def build_index(
        self,
        sentences_or_file: TextSource,
        *,
        column: str | None = None,
        precision: str = "float32",
        ranges: ArrayLike | str | Path | None = None,
        show_progress_bar: bool = False,
    ) -> None:
        """Encodes sentences to search in; they replace those of an earlier index.

        Args:
          sentences_or_file: strings, or a column of a table, each with its own row, also duplicates and
            empty ones; or a .txt, .csv, .tsv, .jsonl or .parquet file.
          column: the file's, if it has no usual name (`sentence`, `text`, `sent0`, `anchor`).
          precision: what the index keeps of an embedding: float32; int8, a byte an element; or binary, a bit.
          ranges: for int8, (2, D), or a file with them, see `encode`, of embeddings as they are compared: for cosines
            of unit length. None takes those of the first 131,072 sentences, or of all. They stay with the index.
          show_progress_bar: see `encode`.

        Raises:
          UserError: in one line, naming the row that is not text or what is wrong with the file or an argument.
        """
        values: Any = read_ranges(str(ranges), self.dimension) if isinstance(ranges, str | Path) else ranges
        index = Index(self.dimension, self.similarity_fn_name, precision, values)
        index.maker = self.identity()
        self.index = self._filled(index, sentences_or_file, column, show_progress_bar)

    def add_to_index(
        self, sentences_or_file: TextSource, *, column: str | None = None, show_progress_bar: bool = False
    ) -> None:
        """Adds sentences after those of the index, all or none, or starts an index; see `build_index`.

        Raises:
          UserError: also for an index of LanceDB, or when the model now embeds sentences otherwise than those of the
            index: its prompts, `max_length` or pooler were changed.
        """
        if self.index is None:
            return self.build_index(sentences_or_file, column=column, show_progress_bar=show_progress_bar)
        if isinstance(self.index, LanceIndex):
            raise UserError("an index of LanceDB is added to from embeddings: simcse-jax search build")
        maker = self.identity()
        self.index.check_takes(self.dimension, self.similarity_fn_name)
        check_maker("the index", self.index.maker or maker, maker, "build another")
        new = Index(self.dimension, self.similarity_fn_name, self.index.precision)
        new.ranges = self.index.ranges
        self.index.extend(self._filled(new, sentences_or_file, column, show_progress_bar))

    def _filled(
        self, index: Index, sentences_or_file: TextSource, column: str | None, show_progress_bar: bool
    ) -> Index:
        if isinstance(sentences_or_file, str | Path):
            sentences = read_sentences(sentences_or_file, column)
        else:
            sentences = check_sentences(sentences_or_file)
        options = with_prompt_of(EncodeOptions(), self.prompts, *DOCUMENT_PROMPTS)
        cut, ranges = 0, index.ranges
        with Progress(len(sentences), shown=show_progress_bar) as bar:
            for start in range(0, len(sentences), INDEXED_AT_ONCE):
                part = sentences[start : start + INDEXED_AT_ONCE]
                encoded = self.encode_counted(part, advance=bar.advance, **options)
                index.add(part, encoded.embeddings)
                cut += encoded.cut
        warn_of_cut(cut, self.max_length, stacklevel=4)
        if index.precision == "int8" and ranges is None:
            warn_of_few(len(sentences), stacklevel=4)
        return index

    @overload
    def search(
        self, queries: str, top_k: int = 5, threshold: float | None = None, **options: Unpack[SearchOptions]
    ) -> list[Result]: ...
    @overload
    def search(
        self, queries: Several | Path, top_k: int = 5, threshold: float | None = None, **options: Unpack[SearchOptions]
    ) -> list[list[Result]]: ...
    @overload
    def search(
        self, queries: Queries, top_k: int = 5, threshold: float | None = None, **options: Unpack[SearchOptions]
    ) -> list[Result] | list[list[Result]]: ...
    def search(
        self,
        queries: Queries,
        top_k: int = 5,
        threshold: float | None = None,
        *,
        column: str | None = None,
        approximate: bool = False,
        recall_target: float = 0.95,
        backend: Backend = "jax",
        storage: Storage = "float32",
        rescore: int | None = None,
        refine: int | None = None,
        nprobes: int | None = None,
    ) -> list[Result] | list[list[Result]]:
        """The sentences of the index that are nearest to each query, best first: a list of `(sentence, row, score)`.

        Queries are encoded by `encode_query`, the sentences of the index were by `encode_document`. Scores are cosines,
        or of the model's `similarity_fn_name` when the index was built; distances are negative.

        Args:
          queries: one string or one embedding gives one list; several, or a file (a `pathlib.Path`), a list for each.
            See `similarity` for embeddings.
          top_k: the maximum number of results for each query.
          threshold: the smallest score of a result; None for any. The SimCSE authors' package has 0.6.
          column: of a file of queries, if it has no usual name.
          approximate, recall_target, backend, storage, rescore: see `simcse_jax.index.index.Index.search`.
          refine, nprobes: for an index of `open_index`, see `simcse_jax.index.lance.LanceIndex.search`.
        """
        compared = self.index.similarity if self.index else "cosine"
        kept = self.index.precision if isinstance(self.index, Index) else "float32"
        check_search(top_k, threshold, backend, compared, storage, kept)
        top_k, rescore = int(top_k), None if rescore is None else int(rescore)  # NumPy's integers count bits otherwise
        if self.index is None:
            raise UserError("there is no index to search in; call build_index, load_index or open_index first")
        texts = read_sentences(queries, column) if isinstance(queries, Path) else queries
        vectors = self._vectors(texts, self._encoded_queries, "query")
        asked = np.atleast_2d(vectors)
        if isinstance(self.index, LanceIndex):
            results = self.index.search(asked, top_k, threshold, refine=refine, nprobes=nprobes)
        else:
            options: dict[str, Any] = {"approximate": approximate, "recall_target": recall_target, "backend": backend}
            options |= {"storage": storage, "rescore": rescore}
            results = self.index.search(asked, top_k, threshold, **options)
        return results[0] if vectors.ndim == 1 else results

    def _encoded_queries(self, texts: str | Sequence[str]) -> np.ndarray:
        if self.index is not None and self.index.maker is not None:
            check_queries(self.index.maker, self.identity())
        return self.encode_query(texts)

    def save_pretrained(self, folder: str | Path, **card: Unpack[CardFields]) -> None:
        """Writes the model, with its attributes as they are now, for transformers, sentence-transformers and `SimCSE`.

        A run's model gets its model card. `simcse-jax export` also keeps a language-model head.

        Args:
          folder: a new folder, or that of an earlier export, which is replaced.
          **card: of a run's model, for its card: `license="apache-2.0"`, `base_model="OWNER/NAME"` (the hub's name of
            what training started from), `language="en"` or several codes; otherwise what the run knows.

        Raises:
          UserError: when it is another folder or cannot be written, the model has a pooler that cannot be, or a field
            of the card is wrong, or given for a model that is not a run's.
        """
        fields = card_fields(**card)
        exporting.save(self._as_set(), local_path(str(folder)), fields=fields)

    def push_to_hub(
        self, repository: str, *, private: bool = False, revision: str | None = None, **card: Unpack[CardFields]
    ) -> str:
        """Uploads what `save_pretrained` writes.

        Args:
          repository: OWNER/NAME.
          private: whether only you and your organization see it, if it is new.
          revision: the branch; None for the main one.
          **card: as for `save_pretrained`.

        Returns:
          The address of the commit.

        Raises:
          UserError: when the hub refuses it, or there is no token (`hf auth login`).
        """
        fields = card_fields(**card)
        hub.check_push(repository, private, revision)
        with tempfile.TemporaryDirectory() as folder:
            exporting.save(self._as_set(), Path(folder) / "model", repository, revision, fields)
            try:
                return hub.push(Path(folder) / "model", repository, private, revision)
            except UserError as error:
                raise UserError(f"{error}".partition("; the export is in")[0]) from None

    def _as_set(self) -> Pretrained:
        """The weights, with the attributes as they are now."""
        self.prompt_of()  # checks the default
        model = self._model if self.pooler == self.own_pooler else self._model.without_modules()
        check_truncation(self.truncate_dim, model.config.sentence_size)
        if self.similarity_fn_name not in SIMILARITIES:
            raise no_such("similarity_fn_name", "similarity", str(self.similarity_fn_name), SIMILARITIES)
        params = model.params.items()
        kept = {name: value for name, value in params if self.use_head or not name.startswith(PREFIX)}
        settings = model.settings._replace(
            prompts=self.prompts,
            default_prompt_name=self.default_prompt_name,
            truncate_dim=self.truncate_dim,
            similarity=self.similarity_fn_name,
        )
        fields: dict[str, Any] = {"pooler": self.pooler, "max_length": self.max_length, "normalize": self.normalize}
        return dataclasses.replace(model, params=jax.tree.map(np.asarray, kept), settings=settings, **fields)

    def save_index(self, folder: str | Path) -> None:
        """Writes the index to a folder, whole or not at all; an earlier index there is replaced."""
        if self.index is None:
            raise UserError("there is no index to save; call build_index first")
        if isinstance(self.index, LanceIndex):
            raise UserError(f"{self.index.folder}: an index of LanceDB is saved already; copy its folder")
        index_folder.save(self.index, folder, self.index.maker or self.identity())

    def load_index(self, folder: str | Path) -> None:
        """Reads an index that this model made; its embeddings are memory-mapped."""
        self.index = index_folder.load(folder, self.identity())

    def open_index(self, folder: str | Path) -> Self:
        """Takes an index of LanceDB, which stays in its folder or bucket; `simcse-jax search build` makes it.

        Returns:
          This object: `SimCSE("runs/unsup").open_index("gs://b/index").search("A dog runs.", refine=20)`.

        Raises:
          UserError: when there is none, it is damaged, another model made its embeddings, its bucket cannot be
            reached, or LanceDB is not installed.
        """
        self.index = LanceIndex(folder, self.identity())
        return self
