"""The half of the class SimCSE that compares sentences: similarities, and an index to search in."""

import abc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.data.sentences import check_sentences, read_sentences
from simcse_jax.encoding.arguments import check_path, embeddings_or_sentences, names_ours
from simcse_jax.encoding.calibration import read_ranges
from simcse_jax.encoding.embedder import Encoded, warn_of_cut
from simcse_jax.encoding.quantization import checked_ranges, warn_of_few
from simcse_jax.errors import UserError
from simcse_jax.host.progress import Progress
from simcse_jax.index import folder as index_folder
from simcse_jax.index.identity import ModelIdentity, check_maker, check_queries
from simcse_jax.index.index import Index, Result
from simcse_jax.index.lance import LanceIndex, check_options
from simcse_jax.index.options import Backend, SearchOptions, check_precision, check_search
from simcse_jax.index.placed import Storage
from simcse_jax.index.similarity import similarities

Several = list[str] | tuple[str, ...]
Texts = str | Iterable[str]
Queries = Texts | ArrayLike | Path
Corpus = Iterable[str] | str | Path
INDEXED_AT_ONCE = 1 << 17  # sentences, so that memory does not hold the embeddings of a large corpus twice


class Searchable(abc.ABC):
    """What needs nothing of a model but its embeddings."""

    index: Index | LanceIndex | None
    max_length: int
    similarity_fn_name: str

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The number of elements of an embedding."""

    @abc.abstractmethod
    def encode(self, sentences: str | Iterable[str]) -> np.ndarray:
        """Sentences of any kind: (N, D); one string: (D,)."""

    @abc.abstractmethod
    def encode_query(self, sentences: str | Iterable[str]) -> np.ndarray:
        """Queries, as `encode`."""

    @abc.abstractmethod
    def _encode_documents(self, sentences: list[str], advance: Callable[[int], object]) -> Encoded:
        """Sentences for the index; `advance` is called with the number of them that are done."""

    @abc.abstractmethod
    def identity(self) -> ModelIdentity:
        """All that the embeddings of an index depend on."""

    @overload
    def similarity(self, a: str, b: str) -> float: ...
    @overload
    def similarity(self, a: Several, b: Texts | ArrayLike) -> np.ndarray: ...
    @overload
    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> np.ndarray | float: ...
    @names_ours
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
        found = similarities(np.atleast_2d(first), np.atleast_2d(second), self.similarity_fn_name)
        if first.ndim == 1:
            return float(found[0, 0]) if second.ndim == 1 else found[0]
        return found

    def _vectors(
        self, given: Texts | ArrayLike, encode: Callable[..., np.ndarray], what: str = "sentence"
    ) -> np.ndarray:
        """Embeddings as given, or of the sentences given; `what` is the word for a sentence in errors."""
        found = embeddings_or_sentences(given, self.dimension)
        if isinstance(found, np.ndarray):
            return found
        return encode(found if isinstance(found, str) else check_sentences(found, what))

    @names_ours
    def build_index(
        self,
        sentences_or_file: Corpus,
        *,
        column: str | None = None,
        precision: str = "float32",
        ranges: ArrayLike | str | Path | None = None,
        show_progress_bar: bool = False,
    ) -> None:
        """Encodes sentences to search in; they replace those of an earlier index.

        Args:
          sentences_or_file: strings, or a table with one column of them, each with its own row, also duplicates and
            empty ones; or a .txt, .csv, .tsv, .jsonl or .parquet file.
          column: the file's, if it has no usual name (`sentence`, `text`, `sent0`, `anchor`).
          precision: what the index keeps of an embedding: float32; int8, a byte an element; or binary, a bit.
          ranges: for int8, (2, D), or a file with them, see `encode`, of embeddings as they are compared: for cosines
            of unit length. None takes those of the first 131,072 sentences, or of all. They stay with the index.
          show_progress_bar: see `encode`.

        Raises:
          UserError: in one line, naming the row that is not text or what is wrong with the file or an argument.
        """
        check_precision(precision, self.similarity_fn_name, ranges is not None)
        given = read_ranges(str(ranges), self.dimension) if isinstance(ranges, str | Path) else ranges
        own = None if given is None else checked_ranges(given, self.dimension)
        index = Index(self.dimension, self.similarity_fn_name, precision, own)
        index.maker = self.identity()
        self.index = self._filled(index, sentences_or_file, column, show_progress_bar)

    @names_ours
    def add_to_index(
        self, sentences_or_file: Corpus, *, column: str | None = None, show_progress_bar: bool = False
    ) -> None:
        """Adds sentences after those of the index, all or none, or starts an index; see `build_index`.

        Raises:
          UserError: also for an index of LanceDB, or when the model now embeds sentences otherwise than those of the
            index: its prompts, `max_length` or pooler were changed.
        """
        if isinstance(self.index, LanceIndex):
            raise UserError("an index of LanceDB is added to from embeddings: simcse-jax search build")
        new, maker = Index(self.dimension, self.similarity_fn_name), self.identity()
        new.maker = maker
        if self.index is not None:
            self.index.check_takes(self.dimension, self.similarity_fn_name)
            check_maker("the index", self.index.maker or maker, maker, "build another")
            new = Index(self.dimension, self.similarity_fn_name, self.index.precision)
            new.ranges = self.index.ranges
        self._filled(new, sentences_or_file, column, show_progress_bar)
        if self.index is None:
            self.index = new
        else:
            self.index.extend(new)

    def _filled(self, index: Index, sentences_or_file: Corpus, column: str | None, show_progress_bar: bool) -> Index:
        if isinstance(sentences_or_file, str | Path):
            sentences = read_sentences(sentences_or_file, column)
        else:
            sentences = check_sentences(sentences_or_file)
        cut, given = 0, index.ranges
        with Progress(len(sentences), shown=show_progress_bar) as bar:
            for start in range(0, len(sentences), INDEXED_AT_ONCE):
                part = sentences[start : start + INDEXED_AT_ONCE]
                encoded = self._encode_documents(part, bar.advance)
                index.add(part, encoded.embeddings)
                cut += encoded.cut
        warn_of_cut(cut, self.max_length, stacklevel=5)
        if index.precision == "int8" and given is None:
            warn_of_few(len(sentences), stacklevel=5)
        index.clipped.warn(stacklevel=5)
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

        Raises:
          UserError: when there is no index, or an argument is wrong.
        """
        compared = self.index.similarity if self.index else "cosine"
        kept = self.index.precision if isinstance(self.index, Index) else "float32"
        check_search(top_k, threshold, recall_target, backend, compared, storage, rescore, kept)
        top_k, rescore = int(top_k), None if rescore is None else int(rescore)  # NumPy's integers count bits otherwise
        in_memory = {"approximate": approximate, "backend": backend != "jax", "storage": storage != "float32"}
        in_memory["rescore"] = rescore is not None
        check_options(isinstance(self.index, LanceIndex), refine, nprobes, **in_memory)
        if self.index is None:
            raise UserError("there is no index to search in; call build_index, load_index or open_index first")
        given = read_sentences(queries, column) if isinstance(queries, Path) else queries
        vectors = self._vectors(given, self._encoded_queries, "query")
        asked = np.atleast_2d(vectors)
        if isinstance(self.index, LanceIndex):
            found = self.index.search(asked, top_k, threshold, refine=refine, nprobes=nprobes)
        else:
            found = self.index.search(
                asked,
                top_k,
                threshold,
                approximate=approximate,
                recall_target=recall_target,
                backend=backend,
                storage=storage,
                rescore=rescore,
            )
        return found[0] if vectors.ndim == 1 else found

    def _encoded_queries(self, texts: str | Sequence[str]) -> np.ndarray:
        if self.index is not None and self.index.maker is not None:
            check_queries(self.index.maker, self.identity())
        return self.encode_query(texts)

    def save_index(self, folder: str | Path) -> None:
        """Writes the index to a folder, whole or not at all; an earlier index there is replaced.

        Raises:
          UserError: when there is no index, or the folder cannot be written or holds something else.
        """
        if self.index is None:
            raise UserError("there is no index to save; call build_index first")
        if isinstance(self.index, LanceIndex):
            raise UserError(f"{self.index.folder}: an index of LanceDB is saved already; copy its folder")
        check_path(folder, "the folder")
        index_folder.save(self.index, folder, self.index.maker or self.identity())

    def load_index(self, folder: str | Path) -> None:
        """Reads an index that this model made; its embeddings are memory-mapped.

        Raises:
          UserError: when there is none, one of its files is damaged, or another model made it.
        """
        check_path(folder, "the folder")
        self.index = index_folder.load(folder, self.identity())

    def open_index(self, folder: str | Path) -> Self:
        """Takes an index of LanceDB, which stays in its folder or bucket; `simcse-jax search build` makes it.

        Returns:
          This object: `SimCSE("runs/unsup").open_index("gs://b/index").search("A dog runs.", refine=20)`.

        Raises:
          UserError: when there is none, it is damaged, another model made its embeddings, its bucket cannot be
            reached, or LanceDB is not installed.
        """
        check_path(folder, "the folder")
        self.index = LanceIndex(folder, self.identity())
        return self
