"""Retrieval: compares the documents nearest to each query with those judged relevant.

Documents are encoded and compared block by block, on all devices; of a block's embeddings only the best of each query
are kept. The ranking is trec_eval's: by score in float32, of equal ones by the document's id, the last one first.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float64, Int64

from simcse_jax.choices import MEASURES, USUAL
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir, ranking, sts
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Embed, Encode, Retriever, encode_once, with_titles
from simcse_jax.evaluation.significance import paired_p
from simcse_jax.host.progress import doing
from simcse_jax.host.storage import local_path
from simcse_jax.index.index import LARGE, SMALL
from simcse_jax.index.placed import Storage, stored
from simcse_jax.index.top_k import Block, top_k
from simcse_jax.vectors.similarity import prepared

BEST = 100  # the highest score
LEAST_P = 0.001  # smaller ones are printed as "< 0.001"


class RetrievalSpec(NamedTuple):
    """The retrieval that scores a run; see the fields of `config.eval.retrieval`."""

    data: str = ""
    measures: tuple[str, ...] = USUAL
    split: str = "test"
    development: str = "dev"
    documents: int = 0
    seed: int = 0
    storage: Storage = "float32"


class Sides(NamedTuple):
    """How a model encodes queries and documents, and compares them."""

    query: Encode
    document: Encode
    similarity: str


def sides(embed: Embed, prompts: Mapping[str, str] | None = None) -> Sides:
    """How a model encodes both; one that treats them alike by cosines, after `prompts` of `query` and `document`."""
    if isinstance(embed, Retriever):
        return Sides(embed.encode_query, embed.encode_document, embed.similarity_fn_name)

    def after(prompt: str) -> Encode:
        return (lambda sentences: embed([prompt + sentence for sentence in sentences])) if prompt else embed

    query, document = ((prompts or {}).get(role, "") for role in ("query", "document"))
    return Sides(after(query), after(document), "cosine")


def search(
    model: Sides,
    collection: Collection,
    count: int,
    storage: Storage = "float32",
    devices: Sequence[jax.Device] | None = None,
) -> Int64[np.ndarray, "Q _"]:
    """The best documents of each query, in trec_eval's order: (Q, count) rows, -1 where there are no more.

    Documents' embeddings are rounded to the type `storage`; products are summed in float32.
    """
    with doing("queries"):
        queries = prepared(encode_once(model.query, [collection.first])[0], model.similarity).astype(np.float32)
    asked = count + bool((collection.same_ids >= 0).any())
    wanted = 1 << (asked - 1).bit_length()  # so that few values compile
    blocks = _blocks(model, collection.second, storage)
    mesh = data_mesh(list(devices or jax.devices()))
    scores, rows = top_k(queries, blocks, wanted, mesh, similarity=model.similarity)
    rows = np.where(np.isneginf(scores), -1, rows)
    is_own = (rows == collection.same_ids[:, None]) & (rows >= 0)
    rest = np.argsort(is_own, axis=1, kind="stable")  # the others in their order, then the query's own
    return np.take_along_axis(np.where(is_own, -1, rows), rest, axis=1)[:, :count]


def _blocks(model: Sides, documents: Sequence[str], storage: Storage) -> Iterator[Block]:
    """The embeddings of all documents, in blocks of two sizes, so that any corpus compiles the same programs."""
    for start in range(0, len(documents), LARGE):
        with doing(f"documents from {start + 1:,} of {len(documents):,}"):
            embeddings = encode_once(model.document, [documents[start : start + LARGE]])[0]
        rows = stored(prepared(embeddings, model.similarity).astype(np.float32), storage, start)
        size = LARGE if len(rows) == LARGE else SMALL
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            whole = part if len(part) == size else np.pad(part, ((0, size - len(part)), (0, 0)))
            yield Block(whole, start + first, len(part))


def score(
    model: Sides,
    collection: Collection,
    measures: Sequence[str],
    storage: Storage = "float32",
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Float64[np.ndarray, " Q"]]:
    """The measures of each query, from 0 to 1, by their names; the arguments are those of `search`."""
    return of_rows(search(model, collection, deepest(measures), storage, devices), collection, measures)


def deepest(measures: Sequence[str]) -> int:
    """The documents of a query that the measures look at."""
    return max(int(name.partition("@")[2]) for name in measures)


def of_rows(
    rows: Int64[np.ndarray, "Q _"], collection: Collection, measures: Sequence[str]
) -> dict[str, Float64[np.ndarray, " Q"]]:
    """The measures of each query, from 0 to 1, by their names, for the rows that `search` found."""
    gains, ideal, relevant = collection.gains(rows), collection.ideal(deepest(measures)), collection.relevant
    return {name: ranking.measure(name, gains, ideal, relevant) for name in measures}


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Scores retrieval tasks: {"retrieval": results by task, "retrieval_average": means over the tasks by measure}.

    A task's result is {"ndcg@10": …, "queries": Q, "documents": N, "corpus": N before some were drawn, "sha256": of the
    data}, with the measures × 100, as means over the queries; with `per_query` also {"per_query": {measure: {query id:
    × 100}}}; with a baseline, {"compared": {measure: the result of `compare`}}.
    """

    tasks: Mapping[str, Collection]
    measures: Sequence[str] = USUAL
    storage: Storage = "float32"
    devices: Sequence[jax.Device] | None = None  # that search; None: all
    per_query: bool = False
    baseline: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None  # by task, measure and query id
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of models without their own, as in `sides`

    def with_baseline(self, earlier: Mapping[str, Any] | None, where: str) -> "Retrieval":
        """The same, with each task's differences from another model's numbers of each query, and their p-values."""
        if earlier is None:
            return self
        baseline = {}
        for task, collection in self.tasks.items():
            try:
                result = earlier["retrieval"][task]
                if result["sha256"] != collection.fingerprint:
                    problem = f"{task} was scored on other queries, documents or judgements; score it again"
                    raise UserError(f"{where}: {problem}")
                baseline[task] = {
                    name: {query: float(result["per_query"][name][query]) for query in collection.query_ids}
                    for name in self.measures
                }
            except (KeyError, TypeError, ValueError):
                lacking = f"the {', '.join(self.measures)} of each query of the retrieval task {task}"
                raise UserError(f"{where}: has not {lacking}; give an --output of evaluate that has") from None
        return dataclasses.replace(self, baseline=baseline)

    def __call__(self, embed: Embed) -> dict[str, Any]:
        """The numbers of one model."""
        model, results = sides(embed, self.prompts), {}
        for task, collection in with_titles(self.tasks):
            scores = score(model, collection, self.measures, self.storage, self.devices)
            result: dict[str, Any] = {name: round(BEST * float(values.mean()), 4) for name, values in scores.items()}
            result |= {"queries": len(collection.first), "documents": len(collection.second)}
            result |= {"corpus": collection.total, "sha256": collection.fingerprint}
            by_query = {
                name: dict(zip(collection.query_ids, (BEST * values).tolist(), strict=True))
                for name, values in scores.items()
            }
            if self.baseline:
                pairs = ((name, (by_query[name], self.baseline[task][name])) for name in self.measures)
                result["compared"] = {name: compare(*pair) for name, pair in pairs}
            results[task] = result | ({"per_query": by_query} if self.per_query else {})
        means = {name: np.mean([result[name] for result in results.values()]) for name in self.measures}
        rounded = {name: round(float(mean), 4) for name, mean in means.items()}
        return {"retrieval": results, "retrieval_average": rounded}

    def table(self, numbers: Mapping[str, Any]) -> str:
        """A row for each task, and one for their average if there are several; after a comparison, two for a task."""
        tasks = list(numbers["retrieval"].items())
        rows = [["", *(MEASURES[name] for name in self.measures)]]
        for task, result in [*tasks, *([("average", numbers["retrieval_average"])] if len(tasks) > 1 else [])]:
            rows.append([task, *(f"{result[name]:.2f}" for name in self.measures)])
            if "compared" in result:
                rows.append(["difference"])
                for name in self.measures:
                    difference, p = result["compared"][name].values()
                    chance = "" if p is None else f" (p < {LEAST_P})" if p < LEAST_P else f" (p = {p:.3f})"
                    rows[-1].append(f"{difference:+.2f}{chance}")
        return sts.aligned(rows)

    @property
    def protocol(self) -> str:
        """A description of the figures."""
        lines = [f"{', '.join(MEASURES[name] for name in self.measures)}, × 100, with ties as in trec_eval"]
        lines[0] += f"; documents' embeddings in {self.storage}" if self.storage != "float32" else ""
        for task, collection in self.tasks.items():
            documents = f"{len(collection.second):,}"
            documents += f" of {collection.total:,}" if len(collection.second) < collection.total else ""
            lines.append(f"{task}: {len(collection.first):,} queries, {documents} documents")
            if left_out := int((collection.same_ids >= 0).sum()):
                lines[-1] += f"; {left_out:,} with the id of a query are left out for that query"
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The mean over retrieval tasks of their first measure, under a name; it chooses the best checkpoint."""

    name: str
    retrieval: Retrieval

    @property
    def tasks(self) -> Mapping[str, Collection]:
        """The retrieval tasks."""
        return self.retrieval.tasks

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the data that the number depends on."""
        return " ".join(collection.fingerprint for collection in self.tasks.values())

    def __call__(self, embed: Embed) -> dict[str, float]:
        """The number of one model."""
        return {self.name: next(iter(self.retrieval(embed)["retrieval_average"].values()))}


def read(folders: Sequence[str], split: str = "test", documents: int = 0, seed: int = 0) -> dict[str, Collection]:
    """The tasks of several folders, by the folders' names; the arguments are those of `beir.read`."""
    collections: dict[str, Collection] = {}
    for folder in folders:
        name = os.path.basename(os.path.abspath(local_path(folder)))
        if name in collections:
            raise UserError(f"{folder}: another folder has the name {name}, too; rename one of them")
        collections[name] = beir.read(folder, split, documents, seed)
    return collections


def compare(values: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float | None]:
    """{"difference": of the means, "p": of `paired_p`}, for the scores of the same queries by their ids."""
    scores, baseline = zip(*((value, earlier[query]) for query, value in values.items()), strict=True)
    return {"difference": round(float(np.mean(np.subtract(scores, baseline))), 4), "p": paired_p(scores, baseline)}
