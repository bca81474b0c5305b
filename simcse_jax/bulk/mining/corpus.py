"""The corpus to mine negatives from: a file of sentences, a prepared corpus, an index, or embeddings in files."""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.data.columns import ROLES
from simcse_jax.data.corpus.manifest import corpus_path, is_prepared
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.data.identity import hash_file, stamp_of
from simcse_jax.data.sentences import SentenceFiles
from simcse_jax.errors import UserError
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import is_remote, local_path
from simcse_jax.index.embedding_files import EmbeddingFiles
from simcse_jax.index.folder import ABOUT, is_index
from simcse_jax.index.identity import check_maker
from simcse_jax.index.index import Index, Result
from simcse_jax.index.lance import LanceIndex, is_lance_index
from simcse_jax.index.options import SearchOptions
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.quantization import Quantization

AT_ONCE = 1 << 15  # sentences encoded together


class MinedCorpus(NamedTuple):
    """N rows, and how to search them."""

    search: Callable[[np.ndarray, int], list[list[Result]]]  # from (Q, D) embeddings and a number to the nearest rows
    rows: int
    has_text: bool  # whether it has the rows' texts
    numbers: np.ndarray | None  # (N,) row numbers, if they are not those of the search, 0 … N - 1
    fingerprint: str
    quantization: Quantization | None = None  # how its embeddings are stored, if not in float32
    named: Callable[[], Iterator[np.ndarray]] | None = None  # yields row numbers, if the search returns other than 0 …

    def all_rows(self) -> Iterator[np.ndarray]:
        """The row numbers that pairs may refer to, some at a time."""
        if self.named is not None:
            return self.named()
        return iter([np.arange(self.rows) if self.numbers is None else self.numbers])


def open_corpus(name: str, model: SimCSE, column: str | None, options: SearchOptions) -> MinedCorpus:
    """Opens an index, or builds one in memory.

    Args:
      model: encodes sentences, and gets the index.
      column: of a file of sentences, or the role of a prepared corpus's; None for the usual or the only one.
      options: of a search; those of another kind of index have no effect.
    """
    numbers, mark = None, ""
    on_disk = is_lance_index(name)
    path = corpus_path(name)
    if on_disk and not is_prepared(path):
        _refuse_column(name, column)
        mark = hashlib.sha256((path / ABOUT).read_bytes()).hexdigest() if (path / ABOUT).exists() else ""
        model.open_index(name)
    elif is_remote(name):
        raise UserError(f"--corpus {name}: a prepared corpus is read from a disk; copy it first")
    elif is_index(local_path(name)):
        _refuse_column(name, column)
        mark = hash_file(local_path(name) / ABOUT)
        model.load_index(name)
    elif is_prepared(path):
        mark = _index_prepared(Path(path), model, column)
    elif _has_embeddings(local_path(name)):
        _refuse_column(name, column)
        numbers, mark = _index_embeddings(name, model)
    else:
        files = SentenceFiles(name, column)
        rows, mark = files.scan()
        _fill(model, files.read(), rows)
    index = model.index
    assert index is not None
    has_text = bool(index.first_sentences(1)) if isinstance(index, LanceIndex) else any(index.sentences)
    names = ("refine", "nprobes") if isinstance(index, LanceIndex) else ("backend",)
    of_kind: Any = {name: value for name, value in options.items() if name in names}

    def search(queries: np.ndarray, count: int) -> list[list[Result]]:
        results: Any = model.search(queries, min(count, len(index)), **of_kind)  # a list for each query
        return results

    named = index.numbers if isinstance(index, LanceIndex) else None
    return MinedCorpus(search, len(index), has_text, numbers, mark, index.quantization, named)


def _refuse_column(name: str, column: str | None) -> None:
    if column is not None:
        raise UserError(f"--corpus-column {column}: {name} has no columns of sentences; leave it out")


def _fill(model: SimCSE, sentences: Iterator[str], rows: int) -> None:
    """Encodes sentences into the model's index, some at a time."""
    index = Index(model.dimension, model.similarity_fn_name)
    with Progress(rows) as bar:
        while part := list(itertools.islice(sentences, AT_ONCE)):
            index.add(part, model.encode_document(part))
            bar.advance(len(part))
    if not any(sentence.strip() for sentence in index.sentences):
        raise UserError("--corpus: holds no sentences")
    model.index = index


def _index_prepared(folder: Path, model: SimCSE, column: str | None) -> str:
    corpus = Prepared(folder)
    if column is not None and column not in ROLES[: corpus.num_columns]:
        roles = ", ".join(ROLES[: min(corpus.num_columns, 3)])
        raise UserError(f"--corpus-column {column}: {folder} is a prepared corpus with the columns {roles}")
    if column is None and corpus.num_columns > 1:
        raise UserError(
            f"--corpus {folder}: has {corpus.num_columns} columns; name the one to search in with --corpus-column "
            "anchor or positive"
        )
    place = 0 if column is None else ROLES.index(column)

    def sentences() -> Iterator[str]:
        for first in range(0, len(corpus), AT_ONCE):
            for row in corpus.texts(np.arange(first, min(first + AT_ONCE, len(corpus)))):
                yield row[place] if place < len(row) else ""

    _fill(model, sentences(), len(corpus))
    return f"{corpus.fingerprint} {place}"


def _index_embeddings(name: str, model: SimCSE) -> tuple[np.ndarray, str]:
    """Adds embeddings to the model's index; returns the row numbers and the files' fingerprint."""
    files = EmbeddingFiles(name)
    if files.maker is not None:
        check_maker(files.parts[0].path, files.maker, model.identity())
    elif files.parts[0].path.suffix == ".parquet":
        raise UserError(
            f"--corpus {name}: does not say which model made its embeddings; encode leaves that out where sentences "
            "are cut at another length than the model's own, or their length is not what its products need. Encode it "
            "again without --max-length, or write a .npy, which is taken as it is"
        )
    elif files.dimension != model.dimension:
        raise UserError(
            f"--corpus {name}: embeddings of {files.dimension} elements; those of {model.name} have {model.dimension}"
        )
    index, numbers = Index(model.dimension, model.similarity_fn_name), []
    for batch in files.batches():
        index.add([text or "" for text in batch.sentences.to_pylist()], np.asarray(batch.embeddings, np.float32))
        numbers.append(batch.rows)
    model.index = index
    stamps: list[Any] = [(part.path.name, *stamp_of(str(part.path))) for part in files.parts]
    return np.concatenate(numbers), hashlib.sha256(repr(stamps).encode()).hexdigest()


def _has_embeddings(path: Path) -> bool:
    """Whether a file, or one of a folder, has embeddings, not only sentences."""
    if path.is_dir():
        return any(_has_embeddings(file) for file in sorted(path.iterdir()) if file.is_file())
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return path.suffix.lower() == ".npy"
    import pyarrow
    import pyarrow.parquet

    try:
        return "embedding" in pyarrow.parquet.read_schema(path).names
    except (OSError, ValueError, pyarrow.ArrowException):
        return False  # reported when it is read
