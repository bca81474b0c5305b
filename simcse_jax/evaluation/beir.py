"""Queries, documents and judgements in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

As in BEIR, the text of a document is its title, a space, and its text, and the queries are those that the split judges.
Some of BEIR's own files judge documents that the corpus lacks. As in trec_eval, they cannot be found, and count in the
ideal ranking and in the recall; a query that is judged but not among the queries does not count.
"""

import dataclasses
import functools
import hashlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from simcse_jax.data.rows import open_text
from simcse_jax.errors import UserError
from simcse_jax.host.storage import local_path, parse_json, sha256

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
HEADER = ["query-id", "corpus-id", "score"]  # of qrels
LAYOUT = f"expected BEIR's layout, with {CORPUS}, {QUERIES} and {QRELS}/"

Judgements = Mapping[tuple[str, str], int]  # the relevance by the ids of a query and a document


@dataclasses.dataclass(frozen=True, eq=False)
class Collection:
    """Q queries, N documents, and J judgements.

    Documents are in the order of their ids, the last one first: trec_eval breaks ties so. Where the lower row comes
    first among equal scores, the first k rows are therefore trec_eval's, also if k cuts a tie in two.
    """

    query_ids: list[str]
    first: list[str]  # the queries
    ids: list[str]  # of the documents
    second: list[str]  # the documents
    judged: Int64[np.ndarray, "J 3"]  # the query, the row of the document (N: not in the corpus), the relevance; sorted
    same_ids: Int64[np.ndarray, " Q"]  # the row of the document that has the query's id, and is not judged; -1: none
    total: int  # documents before some were drawn

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all of it, text by text: a corpus may fill most of the memory."""
        digest = hashlib.sha256()
        for texts in (self.query_ids, self.first, self.ids, self.second):
            digest.update(f"{len(texts)}\n".encode())
            for text in texts:
                encoded = text.encode()
                digest.update(b"%d\n%b" % (len(encoded), encoded))
        return sha256(np.frombuffer(digest.digest(), np.uint8), self.judged, self.same_ids)

    @property
    def relevant(self) -> Int64[np.ndarray, " Q"]:
        """The number of each query's relevant documents."""
        return np.bincount(self.judged[self.judged[:, 2] > 0, 0], minlength=len(self.first))

    def ideal(self, most: int) -> Int64[np.ndarray, "Q _"]:
        """(Q, at most `most`) the relevance of each query's judged documents, falling, and zeros after them."""
        query, _, relevance = self.judged[np.lexsort((-self.judged[:, 2], self.judged[:, 0]))].T
        places = np.arange(len(query)) - np.searchsorted(query, query)
        kept = places < most
        relevances = np.zeros((len(self.first), int(places[kept].max(initial=0)) + 1), np.int64)
        relevances[query[kept], places[kept]] = relevance[kept]
        return relevances

    def gains(self, rows: Int64[np.ndarray, "Q K"]) -> Int64[np.ndarray, "Q K"]:
        """The relevance of documents to their query: of those not judged, and of the row -1, 0."""
        places = len(self.ids) + 1  # the last for documents that are not in the corpus
        keys = self.judged[:, 0] * places + self.judged[:, 1]
        asked = np.arange(len(rows))[:, None] * places + rows
        positions = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return np.where((keys[positions] == asked) & (rows >= 0), self.judged[positions, 2], 0)


def read(folder: str, split: str = "test", documents: int = 0, seed: int = 0) -> Collection:
    """Reads a folder, with the judgements of a split; a warning counts judged documents and queries that are not there.

    Args:
      documents: keep so many: all that the split judges, and others drawn with the seed, whatever their order in the
        file; 0: all.
    """
    path = local_path(folder)
    for name in (CORPUS, QUERIES):
        if not (path / name).is_file():
            raise UserError(f"{folder}: no {name} there; {LAYOUT}{split}.tsv")
    judgements = _read_judgements(qrels := path / QRELS / f"{split}.tsv")
    wanted = {query for query, _ in judgements}
    queries = {name: text for name, text in _read_texts(path / QUERIES) if name in wanted}
    texts = dict(_read_texts(path / CORPUS, titled=True))
    asked = {(query, document): relevance for (query, document), relevance in judgements.items() if query in queries}
    judged = {document for _, document in asked}
    if not any(relevance > 0 and document in texts for (_, document), relevance in asked.items()):
        raise UserError(
            f"{qrels}: none of its relevant documents (with a score of 1 or more) is in {CORPUS}, or none of its "
            f"queries in {QUERIES}; take the files of one data set"
        )
    for kind, names, present, then in (
        (f"queries that are not in {QUERIES}", wanted, queries.keys(), "are left out"),
        (f"documents that are not in {CORPUS}", judged, texts.keys(), "count as not found"),
    ):
        if missing := len(names - present):
            where = f"{qrels}: judges {kind} ({missing:,} of {len(names):,})"
            warnings.warn(f"{where}; as in trec_eval, they {then}", stacklevel=2)
    ids = _drawn(sorted(texts), judged & texts.keys(), documents, seed)
    return collect(queries, {name: texts[name] for name in reversed(ids)}, asked, len(texts))


def _drawn(ids: list[str], judged: set[str], count: int, seed: int) -> list[str]:
    """`count` of the sorted ids, all judged ones among them, in their order."""
    if not 0 < count < len(ids):
        return ids
    unjudged = [name for name in ids if name not in judged]
    rows = np.random.default_rng(seed).choice(len(unjudged), max(count - len(judged), 0), replace=False)
    kept = judged.union(unjudged[row] for row in rows.tolist())
    return [name for name in ids if name in kept]


def collect(queries: dict[str, str], documents: dict[str, str], judgements: Judgements, total: int) -> Collection:
    """The collection of texts by their ids; the documents in the order of their ids, the last one first."""
    number = {name: place for place, name in enumerate(queries)}
    row = {name: place for place, name in enumerate(documents)}
    judged = sorted(
        (number[query], row.get(document, len(row)), relevance) for (query, document), relevance in judgements.items()
    )
    same_ids = np.array([-1 if (name, name) in judgements else row.get(name, -1) for name in queries])
    return Collection(
        [*queries], [*queries.values()], [*documents], [*documents.values()], np.array(judged), same_ids, total
    )


def _read_texts(path: Path, titled: bool = False) -> Iterator[tuple[str, str]]:
    """The ids and the texts of a file with a JSON object a line; those of documents begin with their title."""
    seen: set[str] = set()
    for number, line in enumerate(open_text(path), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        record = parse_json(line, where)
        if titled and record.get("title") is None:
            record["title"] = ""
        for field in ("_id", "text", *["title"] * titled):
            if not isinstance(record.get(field), str):
                raise UserError(f"{where}: {field} is {record.get(field)!r:.60}, not text in quotes")
        name, text = record["_id"], record["text"]
        if name in seen:
            raise UserError(f"{where}: the _id {name!r:.60} is given twice")
        seen.add(name)
        # Two splits of a folder have the same texts, which are there once.
        yield sys.intern(name), sys.intern(f"{record['title']} {text}".strip() if titled else text)


def _read_judgements(path: Path) -> Judgements:
    if not path.is_file():
        splits = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv")))
        raise UserError(f"{path}: not found; {f'there are {splits}' if splits else LAYOUT + 'SPLIT.tsv'}")
    judgements: dict[tuple[str, str], int] = {}
    lines = open_text(path)
    if next(lines, "").split("\t") != HEADER:
        raise UserError(f"{path}: line 1 must be the header {', '.join(HEADER)}, separated by tabs")
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        try:
            query, document, score = line.split("\t")
            relevance = int(np.int32(int(score)))
        except (ValueError, OverflowError):
            expected = "two ids and a whole number such as 0, 1 or 2, separated by tabs"
            raise UserError(f"{path}: line {number} is {line!r:.60}, not {expected}") from None
        if (query, document) in judgements:
            raise UserError(f"{path}: line {number} judges the document {document!r:.60} again for {query!r:.60}")
        judgements[query, document] = relevance
    return judgements
