"""Training sentences from files, hub datasets, TensorFlow datasets and SentEval's similarity sets.

A specification is a path ending in .txt, .csv, .tsv, .jsonl or .parquet, a folder of such files or a pattern of them
(`files.files_of`), `hf:NAME[:CONFIG[:SPLIT]]`, `tfds:NAME[:SPLIT]`, `sts:FOLDER` or `sts:FOLDER:TASK[:SPLIT]`
(`data.sts`), or several of them with commas in between. All of them give one column of sentences per role.
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.choices import LABELS, SPANS
from simcse_jax.data.columns import (
    Chosen,
    choose_candidate_scores,
    choose_columns,
    choose_values,
    numbers_of,
    only_sentences,
    warn_of_unread,
)
from simcse_jax.data.datasets import LIBRARIES, Library
from simcse_jax.data.documents import REACH, next_sentences, read_documents
from simcse_jax.data.draws import NEXT_SENTENCES, SUBSAMPLE, corpus_generator
from simcse_jax.data.files import files_of, read_parquet, reader_of
from simcse_jax.data.labels import Classes, parse_label
from simcse_jax.data.row_lists import Negatives, peek_lists, read_negatives, split_positives
from simcse_jax.data.rows import MISSING, Row, read_text
from simcse_jax.data.scores import Scores, read_candidates
from simcse_jax.data.sources import Examples, join
from simcse_jax.data.sts import PREFIX, read_sts, sts_version
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import as_path, is_remote

__all__ = ["Examples", "read_examples"]


PREFIXED = {**LIBRARIES, PREFIX: Library(read_sts, True, sts_version)}  # sources that are not files, by prefix


def read_examples(
    specification: str,
    columns: Mapping[str, str] | None = None,
    *,
    positives: str = "",
    labels: bool = False,
    subsample: int = 0,
    seed: int = 0,
    mixed: bool = False,
    scores: Scores | None = None,
    pairs: bool = True,
    classes: bool = False,
) -> Examples:
    """Reads all examples of a specification (see the module's docstring).

    Args:
      columns: from role (anchor, positive, negative, neutral; label, score) to column name, for unusual names; empty
        names are ignored. If `label` is set, rows without a label are left out.
      positives: how positives are chosen. Empty: by the column. A label: only hypotheses with this label; `all`:
        hypotheses with any label (SimCSE, Table 4). `next_sentence`, `next_3_sentences`: a following sentence of
        the same document (Table 2, see `data.documents`). `spans`: one column of whole documents, whose spans are
        drawn once their tokenizer is known (see `data.documents`).
      labels: whether labels are needed, and kept.
      subsample: the number of examples to draw without replacement, kept in order; 0 for all.
      seed: for everything drawn here.
      mixed: whether several sources may have different columns (see `Examples.present`).
      scores: how to read scores; pairs without one are left out, but all candidates need theirs. None to read none.
      pairs: whether a row's sentences belong together; if so, a warning says that labels or scores are not read.
      classes: whether labels are classes of sentences, which are then kept.
    """
    generator = corpus_generator(seed, NEXT_SENTENCES)
    sources = files_by_source(specification)  # before the first is read
    options = (columns or {}, positives, labels, scores, pairs, Classes() if classes else None)
    parts = {}
    for source, files in sources.items():
        file_examples = {file: _read_source(open_source(file, *options), positives, generator) for file in files}
        parts[source] = dataclasses.replace(join(file_examples, mixed), sources=None)
    examples = join(parts, mixed)
    if subsample:
        examples = draw(examples, subsample, seed, specification)
    return examples if labels or classes else dataclasses.replace(examples, labels=None)


def files_by_source(specification: str) -> dict[str, list[str]]:
    """The files of each source, of which a folder and a pattern have any number; a library's source is its own."""
    files = {}
    for source in split_sources(specification):
        try:
            files[source] = [source] if prefix_of(source) else files_of(source)
        except UserError as error:
            raise UserError(f"data.train={error}") from None
    return files


def expand(data: Sequence[str], option: str) -> list[str]:
    """The sources, with the files of each folder and of each pattern, sorted by name."""
    names: list[str] = []
    for name in itertools.chain.from_iterable(map(split_sources, data)):
        try:
            names += [name] if prefix_of(name) else files_of(name)
        except UserError as error:
            raise UserError(f"{option} {error}") from None
    seen: set[str] = set()
    for name in names:
        place = name if prefix_of(name) or is_remote(name) else os.path.abspath(as_path(name))
        if place in seen:
            raise UserError(f"{option}: {name} is named twice; remove one")
        seen.add(place)
    return names


def _read_source(source: "Source", positives: str, generator: np.random.Generator) -> Examples:
    """All examples of one source, with labels and scores if read; `generator` draws next sentences."""
    if positives == SPANS:
        return Examples(([" ".join(document) for document in _documents(source.rows, source.where)],), 0)
    if positives in REACH:
        return _pair(source.rows, positives, generator, source.where)
    examples = _collect(source)
    if positives in LABELS:
        examples = examples.take(np.flatnonzero(examples.labels == LABELS.index(positives)))
        if not len(examples):
            raise UserError(f"{source.where}: no pair is labelled {positives}; choose another data.positives")
    return examples


class Source(NamedTuple):
    """The rows of one source, and how they are read."""

    names: list[str]  # of the columns
    rows: Iterator[Row]
    chosen: list[int]  # the columns of sentences
    negatives: Negatives  # which of `chosen` are hard negatives
    label: int | None  # the column of labels; None if not read
    where: str  # the source's name, for messages
    score: int | None = None  # the column of scores; None if not read
    scores: Scores | None = None  # how to read it
    candidates: tuple[int, ...] = ()  # the columns of the scores of positives and hard negatives
    read_label: Callable[[object, str], int | None] = parse_label

    @property
    def width(self) -> int:
        """The number of sentences in a row, not counting hard negatives in lists."""
        return len(self.chosen) - self.negatives.lists

    def widest(self) -> int:
        """The maximum number of sentences in a row; with lists, this reads all rows."""
        if not self.negatives.lists:
            return self.width
        return max((len(self.read(row)[0]) for row in self.rows), default=self.width)

    def read(self, row: Row) -> tuple[list[str], int | None]:
        """A row's sentences, "" where blank, and its label, if it has one.

        With numbered columns or lists, rows may have different numbers of hard negatives.
        """
        first, end = self.negatives.first, self.negatives.end
        others = self.chosen[:first] + self.chosen[end:]
        texts = [read_text(row.fields[place], f"{row.where}: the field {self.names[place]!r}") for place in others]
        if places := self.chosen[first:end]:
            values = [row.fields[place] for place in places]
            texts[first:first] = read_negatives(self.negatives, [self.names[at] for at in places], values, row.where)
        if self.label is None or not all(texts):
            return texts, None
        return texts, self.read_label(*self._value(row, self.label))

    def read_score(self, row: Row) -> float | None:
        """A row's score; None if it has none, or if scores are not read."""
        return None if self.score is None or self.scores is None else self.scores.read(*self._value(row, self.score))

    def read_candidates(self, row: Row, count: int) -> list[float]:
        """The scores of a row's positive and hard negatives, `count` texts."""
        return read_candidates([self._value(row, place) for place in self.candidates], count)

    def _value(self, row: Row, place: int) -> tuple[object, str]:
        """The value of a row's label or scores, and where it is."""
        where = f"{row.where}: the field {self.names[place]!r}"
        if row.fields[place] is MISSING:
            raise UserError(f"{where} is missing")
        return row.fields[place], where


def open_source(
    specification: str,
    columns: Mapping[str, str],
    positives: str,
    labels: bool,
    scores: Scores | None = None,
    pairs: bool = True,
    classes: Classes | None = None,
) -> Source:
    """Opens one source and chooses its columns; the arguments are those of `read_examples`."""
    needed_by = check_positives(specification, positives, labels)
    of_classes = "" if classes is None else "objective.supcon"
    if scores and not labels and positives == "all":
        needed_by = ""  # all pairs, whatever their score
    names, rows, where, ordered = open_table(specification)
    label = choose_values("label", names, columns, needed_by or of_classes, where)
    score, candidates = None, list[int]()
    if scores and scores.of_candidates:
        candidates = choose_candidate_scores(names, columns, scores.needed_by, where)
    elif scores:
        score = choose_values("score", names, columns, scores.needed_by, where)
    columns = {**columns, **({} if score is None else {"score": names[score]})}
    graded = scores is not None and not scores.of_candidates
    choice = choose_columns(names, columns, where, ordered, graded)
    chosen, negatives = choice.places, choice.negatives
    if pairs and label is score is None and not candidates and not any(columns.values()):
        warn_of_unread(names, choice, numbers_beside(specification, choice), where)
    needing = needed_by or (scores.needed_by if scores else "")
    if needing and len(chosen) < 2:
        raise UserError(f"{where}: one column of sentences, but {needing} needs pairs; set data.columns.positive")
    if not prefix_of(specification) and where.lower().endswith(".parquet"):  # do not read its other columns
        wanted = {names[place] for place in (*chosen, label, score, *candidates) if place is not None}
        rows = read_parquet(as_path(specification), [*wanted])[1]
    rows = only_sentences(rows, choice, names, where)
    if negatives.first > 1:
        rows = split_positives(rows, names, chosen[1], *(candidates[:1] if score is None else [score]))
    if not negatives.numbered and negatives.first < negatives.end:
        rows, lists = peek_lists(rows, chosen[negatives.first])
        negatives = negatives._replace(lists=lists)
    read_label = parse_label if classes is None else classes.read
    return Source(names, rows, chosen, negatives, label, where, score, scores, tuple(candidates), read_label)


def numbers_beside(specification: str, chosen: Chosen) -> dict[str, list[str]]:
    """The unread columns of a source that hold numbers, and these; see `columns.numbers_of`."""
    if not chosen.unread:
        return {}
    with contextlib.suppress(UserError):  # errors in unread columns do not matter
        names, rows, _, _ = open_table(specification, chosen.unread)
        return numbers_of(chosen, rows, names)
    return {}


def check_positives(specification: str, positives: str, labels: bool) -> str:
    """Refuses positives that such data cannot have. Returns the setting that needs labels, or ""."""
    if positives in (*REACH, SPANS):
        if prefix_of(specification) or Path(specification).suffix.lower() != ".txt":
            needs = f"data.positives={positives} needs a .txt file with a blank line between documents"
            raise UserError(f"{specification}: {needs}")
        positives = ""
    return f"data.positives={positives}" if positives else "objective.softmax_nli" if labels else ""


def prefix_of(specification: str) -> str:
    """`hf:`, `tfds:` or `sts:`; "" for a file."""
    return next((prefix for prefix in PREFIXED if specification.startswith(prefix)), "")


def open_table(specification: str, columns: Sequence[str] | None = None) -> tuple[list[str], Iterator[Row], str, bool]:
    """Column names, rows, the source's name for messages, and whether the order of columns is meaningful.

    Args:
      columns: those that are looked at, which are the only ones read of a .parquet file; None for all.
    """
    if prefix := prefix_of(specification):
        library = PREFIXED[prefix]
        return *library.read(specification.removeprefix(prefix)), specification, library.ordered
    path = as_path(specification)
    if not path.is_file():
        raise UserError(f"data.train={specification}: {'a folder' if path.is_dir() else 'no such file'}")
    if columns is not None and path.suffix.lower() == ".parquet":
        return *read_parquet(path, columns), str(path), True
    return *reader_of(path, ", hf:, tfds: and sts:")(path), str(path), True


def draw(examples: Examples, count: int, seed: int, where: str) -> Examples:
    """`count` of the examples of a specification, `where`, in their order."""
    if not 0 < count <= len(examples):
        raise UserError(
            f"data.subsample={count}: must be from 1 to {len(examples)}, the examples in {where}, or 0 for all"
        )
    drawn = corpus_generator(seed, SUBSAMPLE).permutation(len(examples))[:count]
    return examples.take(np.sort(drawn))


def _pair(rows: Iterable[Row], positives: str, generator: np.random.Generator, where: str) -> Examples:
    pairs = next_sentences(_documents(rows, where), REACH[positives], generator)
    if not pairs[0]:
        raise UserError(
            f"{where}: no document has two sentences, but data.positives={positives} needs them; "
            f"put blank lines only between documents"
        )
    return Examples(pairs, 0)


def _documents(rows: Iterable[Row], where: str) -> list[list[str]]:
    documents = read_documents(str(row.fields[0]) for row in rows)
    if not documents:
        raise no_examples_in(where, 0, 0)
    if len(documents) == 1:
        raise UserError(
            f"{where}: no blank line between sentences, so they may be shuffled; this data.positives needs documents "
            "with a blank line between them"
        )
    return documents


def _collect(source: Source) -> Examples:
    collected: list[list[str]] = [[] for _ in range(source.width)]
    labels: list[int] = []
    scores: list[Any] = []  # of each row, or of all its candidates
    widths: list[int] = []  # the sentences of each row, where these may differ
    blank = unlabelled = unscored = 0
    for row in source.rows:
        sentences, label = source.read(row)
        if not all(sentences):
            blank += 1
            continue
        if source.label is not None and label is None:
            unlabelled += 1
            continue
        if source.score is not None:
            score = source.read_score(row)
            if score is None:
                unscored += 1
                continue
            scores.append(score)
        elif source.candidates:
            scores.append(source.read_candidates(row, len(sentences) - 1))
        if label is not None:
            labels.append(label)
        if source.negatives.may_differ:
            collected += [[""] * len(widths) for _ in range(len(collected), len(sentences))]
            widths.append(len(sentences))
        for place, column in enumerate(collected):
            column.append(sentences[place] if place < len(sentences) else "")
    if not collected[0]:
        raise no_examples_in(source.where, blank, unlabelled, unscored)
    rows = np.array(widths or [len(collected)])
    return Examples(
        tuple(collected),
        blank,
        None if source.label is None else np.array(labels, np.int32),
        unlabelled,
        unscored,
        present=None if (rows == len(collected)).all() else np.arange(len(collected)) < rows[:, None],
        scores=_as_array(scores, len(collected) - 1) if scores else None,
    )


def _as_array(scores: list[Any], candidates: int) -> np.ndarray:
    """(N,) scores of pairs, or (N, K) of K candidates, 0 for those that a row lacks."""
    if isinstance(scores[0], list):
        scores = [[*row_scores, *[0.0] * (candidates - len(row_scores))] for row_scores in scores]
    return np.array(scores, np.float32)


def no_examples_in(where: str, blank: int, unlabelled: int, unscored: int = 0) -> UserError:
    """The error for a source without examples."""
    counts = ((blank, "blank rows"), (unlabelled, "rows without a label"), (unscored, "rows without a score"))
    left_out = " and ".join(f"{count} {kind}" for count, kind in counts if count)
    return UserError(f"{where}: holds no sentences" + (f", only {left_out}" if left_out else ""))
