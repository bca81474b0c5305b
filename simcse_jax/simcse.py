"""The class that people use a trained model with."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Unpack, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.data.sentences import check_sentences, read_sentences
from simcse_jax.encoding.arguments import check_options, embeddings_or_sentences, names_ours
from simcse_jax.encoding.embedder import Embedder, Encoded, on_local_devices, to_unit, warn_of_cut
from simcse_jax.encoding.tokens import TokenEncoder
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import ChosenPooler, Pretrained, choose_pooler
from simcse_jax.huggingface.public_names import public_value
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.index import files as index_files
from simcse_jax.index.index import Backend, Index, Result, SearchOptions, check_search, sharing_copy
from simcse_jax.models.config import DTYPES
from simcse_jax.models.head import PREFIX
from simcse_jax.progress import Progress
from simcse_jax.runs.loading import load_model
from simcse_jax.storage import sha256

Several = list[str] | tuple[str, ...]
Texts = str | Iterable[str]
Queries = Texts | ArrayLike | Path
Corpus = Iterable[str] | str | Path
INDEXED_AT_ONCE = 1 << 17  # sentences, so that memory does not hold the embeddings of a large corpus twice


class SimCSE:
    """A sentence encoder: `SimCSE("runs/my-run").encode(["A sentence.", "Another one."])`.

    Arguments of other packages, such as `normalize_embeddings=`, raise a `TypeError` with the name of ours.
    """

    @names_ours
    def __init__(
        self,
        name: str | Path,
        *,
        pooler: str | None = None,
        num_layers: int = 0,
        batch_size: int = 64,
        dtype: str = "float32",
    ):
        """Loads a model onto all local devices.

        Args:
          name: a folder in Hugging Face format, a hub id, `package:NAME`, or a workdir of ours.
          pooler: None takes the model's own.
          num_layers: keep the first n layers; 0 keeps all.
          batch_size: sentences encoded together on each device; fewer of those longer than 64 tokens.
          dtype: the type to compute in, float32 or bfloat16; embeddings are float32 with both.

        Raises:
          UserError: in one line, for anything that is wrong with the model or an argument.
        """
        name = str(name)
        check_options(pooler, batch_size, None)
        if dtype not in DTYPES:
            raise UserError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
        model = load_model(name, num_layers)
        self._set_up(name, model, Tokenizer(model.folder, model.config), choose_pooler(model, pooler), dtype)
        self.batch_size = batch_size

    def _set_up(self, name: str, model: Pretrained, tokenizer: Tokenizer, chosen: ChosenPooler, dtype: str) -> None:
        self.name = name
        self.index: Index | None = None
        self.pooler, self.use_head = chosen
        self.own_pooler = model.pooler  # None where its files ask for one that this encoder lacks
        self.config = model.config
        self.max_length = model.max_length  # in tokens
        self.normalize = model.normalize  # whether its files ask for embeddings of unit length
        self.dtype = dtype
        self._embedder = on_local_devices(model, tokenizer, chosen, dtype)
        self._model = dataclasses.replace(model, params=self._embedder.params, language_model=None)  # no second copy

    def __getstate__(self) -> dict[str, Any]:
        # Without devices and compiled programs, which belong to this process.
        own = {name: value for name, value in vars(self).items() if name not in ("_model", "_embedder")}
        model = dataclasses.replace(self._model, params=jax.tree.map(np.asarray, self._model.params))
        return {"own": own, "model": model, "tokenizer": self._embedder.tokenizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = state["own"]
        chosen = ChosenPooler(own["pooler"], own["use_head"])
        self._set_up(own["name"], state["model"], state["tokenizer"], chosen, own["dtype"])
        vars(self).update(own)

    __copy__ = sharing_copy

    def __repr__(self) -> str:
        head = " with head" if self.use_head else ""
        shape = f"{self.config.num_layers} layers, dimension {self.dimension}, at most {self.max_length} tokens"
        return f"SimCSE({self.name!r}: {self.config.model_type}, {shape}, pooler {self.pooler}{head}, {self.dtype})"

    def __call__(self, sentences: str | Iterable[str]) -> np.ndarray:
        """`encode` with the constructor's options, so that evaluators can take a model as their `embed`."""
        return self.encode(sentences)

    @property
    def dimension(self) -> int:
        """The number of elements of an embedding."""
        return self.config.hidden_size

    @property
    def tokens(self) -> TokenEncoder:
        """`token_encoder` with the model's own maximum length."""
        return self.token_encoder()

    @names_ours
    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = None,
        normalize_to_unit: bool | None = None,
        max_length: int | None = None,
        pooler: str | None = None,
        show_progress_bar: bool = False,
    ) -> np.ndarray:
        """(N, D) float32 embeddings in the order given; one string gives (D,), no sentences (0, D).

        Sentences longer than the model takes are cut; a `UserWarning` says how many.

        Args:
          sentences: a string, or any iterable of strings; the empty string has an embedding too.
          batch_size: None takes the constructor's.
          normalize_to_unit: whether embeddings have length 1; None follows the model's files.
          max_length: in tokens, with the two special ones; None takes the model's own, which is also the maximum.
          pooler: None takes the constructor's.
          show_progress_bar: on standard error: a bar on a terminal, elsewhere a line every half minute.

        Raises:
          UserError: naming the first sentence that is not a string, or the argument that is out of its range.
        """
        chosen = self._configured(pooler, batch_size, max_length, normalize_to_unit)
        texts = check_sentences([sentences] if isinstance(sentences, str) else sentences)
        with Progress(len(texts), shown=show_progress_bar) as bar:
            embeddings, cut = chosen.encode(texts, bar.advance)
        warn_of_cut(cut, chosen.max_length, stacklevel=4)
        return embeddings[0] if isinstance(sentences, str) else embeddings

    def encode_counted(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int | None = None,
        normalize_to_unit: bool | None = None,
        max_length: int | None = None,
        pooler: str | None = None,
        advance: Callable[[int], object] | None = None,
    ) -> Encoded:
        """Like `encode`, but returns how many sentences were cut instead of warning.

        Args:
          sentences: an iterable of strings.
          batch_size, normalize_to_unit, max_length, pooler: see `encode`.
          advance: called with the number of sentences done since the last call, after each batch.
        """
        chosen = self._configured(pooler, batch_size, max_length, normalize_to_unit)
        return chosen.encode(check_sentences(sentences), advance)

    def _configured(
        self,
        pooler: str | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        normalize: bool | None = None,
    ) -> Embedder:
        """The embedder; an argument that is not None replaces the model's own value."""
        check_options(pooler, batch_size, max_length, self.max_length)
        pooler, use_head = (self.pooler, self.use_head) if pooler is None else choose_pooler(self._model, pooler)
        return dataclasses.replace(
            self._embedder,
            pooler=pooler,
            use_head=use_head,
            max_length=self.max_length if max_length is None else max_length,
            batch_size=(self.batch_size if batch_size is None else batch_size) * len(jax.local_devices()),
            normalize=self.normalize if normalize is None else normalize,
        )

    def token_encoder(self, max_length: int | None = None) -> TokenEncoder:
        """The token embeddings of every layer, before pooler and head, for `simcse_jax.analysis`.

        Args:
          max_length: see `encode`.
        """
        return self._configured(max_length=max_length).tokens

    @overload
    def similarity(self, a: str, b: str) -> float: ...
    @overload
    def similarity(self, a: Several, b: Texts | ArrayLike) -> np.ndarray: ...
    @overload
    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> np.ndarray | float: ...
    @names_ours
    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> np.ndarray | float:
        """Cosines, (len(a), len(b)) float32.

        As in the SimCSE authors' package, one string or one embedding for `a` gives (len(b),), one for `a` and one for
        `b` give a number, and one for `b` alone gives (len(a), 1).

        Args:
          a, b: strings, or embeddings of this model, (N, D) or (D,): arrays of NumPy or JAX, PyTorch tensors, or lists
            of numbers.

        Raises:
          UserError: for a mix of sentences and numbers, or embeddings that are not of the model's size.
        """
        first, second = self._vectors(a), self._vectors(b)
        cosines = to_unit(np.atleast_2d(first)) @ to_unit(np.atleast_2d(second)).T
        if first.ndim == 1:
            return float(cosines[0, 0]) if second.ndim == 1 else cosines[0]
        return cosines

    def _vectors(self, given: Texts | ArrayLike) -> np.ndarray:
        found = embeddings_or_sentences(given, self.dimension)
        return found if isinstance(found, np.ndarray) else self.encode(found)

    @names_ours
    def build_index(
        self, sentences_or_file: Corpus, *, column: str | None = None, show_progress_bar: bool = False
    ) -> None:
        """Encodes sentences to search in; they replace those of an earlier index.

        Args:
          sentences_or_file: strings, each with its own row, including duplicates and empty ones; or a .txt, .csv, .tsv,
            .jsonl or .parquet file.
          column: the file's, if it has no usual name (`sentence`, `text`, `sent0`, `anchor`).
          show_progress_bar: see `encode`.

        Raises:
          UserError: in one line, naming the row that is not text or what is wrong with the file.
        """
        self.index = self._indexed(sentences_or_file, column, show_progress_bar)

    @names_ours
    def add_to_index(
        self, sentences_or_file: Corpus, *, column: str | None = None, show_progress_bar: bool = False
    ) -> None:
        """Adds sentences after those of the index, all or none, or starts an index; see `build_index`."""
        new = self._indexed(sentences_or_file, column, show_progress_bar)
        if self.index is None:
            self.index = new
        else:
            self.index.extend(new)

    def _indexed(self, sentences_or_file: Corpus, column: str | None, show_progress_bar: bool) -> Index:
        if isinstance(sentences_or_file, str | Path):
            sentences = read_sentences(sentences_or_file, column)
        else:
            sentences = check_sentences(sentences_or_file)
        index, cut = Index(self.dimension), 0
        with Progress(len(sentences), shown=show_progress_bar) as bar:
            for start in range(0, len(sentences), INDEXED_AT_ONCE):
                part = sentences[start : start + INDEXED_AT_ONCE]
                encoded = self.encode_counted(part, advance=bar.advance)
                index.add(part, encoded.embeddings)
                cut += encoded.cut
        warn_of_cut(cut, self.max_length, stacklevel=5)
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
    @names_ours
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
    ) -> list[Result] | list[list[Result]]:
        """The sentences of the index that are nearest to each query, best first: a list of `(sentence, row, score)`.

        Args:
          queries: one string or one embedding gives one list; several, or a file (a `pathlib.Path`), a list for each.
            See `similarity` for embeddings.
          top_k: the maximum number of results for each query.
          threshold: the smallest cosine of a result; None for any. The SimCSE authors' package has 0.6.
          column: of a file of queries, if it has no usual name.
          approximate, recall_target, backend: see `simcse_jax.index.index.Index.search`.

        Raises:
          UserError: when there is no index, or an argument is wrong.
        """
        check_search(top_k, threshold, recall_target, backend)
        if self.index is None:
            raise UserError("there is no index to search in; call build_index or load_index first")
        given = read_sentences(queries, column) if isinstance(queries, Path) else queries
        vectors = embeddings_or_sentences(given, self.dimension)
        if not isinstance(vectors, np.ndarray):
            vectors = self.encode(vectors if isinstance(vectors, str) else check_sentences(vectors, "query"))
        found = self.index.search(
            np.atleast_2d(vectors),
            top_k,
            threshold,
            approximate=approximate,
            recall_target=recall_target,
            backend=backend,
        )
        return found[0] if vectors.ndim == 1 else found

    def save_index(self, folder: str | Path) -> None:
        """Writes the index to a folder, whole or not at all; an earlier index there is replaced.

        Raises:
          UserError: when there is no index, or the folder cannot be written or holds something else.
        """
        if self.index is None:
            raise UserError("there is no index to save; call build_index first")
        index_files.save(self.index, folder, self.identity())

    def load_index(self, folder: str | Path) -> None:
        """Reads an index that this model made; its embeddings are memory-mapped.

        Raises:
          UserError: when there is none, one of its files is damaged, or another model made it.
        """
        self.index = index_files.load(folder, self.identity())

    def identity(self) -> index_files.ModelIdentity:
        """All that the embeddings depend on: indexes and half-encoded files belong to it."""
        params = self._model.params
        names = sorted(name for name in params if self.use_head or not name.startswith(PREFIX))
        about = repr((self.config, self.max_length)).encode() + self._embedder.tokenizer.content()
        digest = sha256(np.frombuffer(about, np.uint8), *(np.asarray(params[name]) for name in names))
        name = public_value("model.init_from", self.name)  # without its path on this machine
        return index_files.ModelIdentity(name, self.pooler, self.use_head, self.dimension, digest, self.dtype)
