from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simcse_jax.evaluation.sts import Pairs
from support.later import later

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

mteb, abstasks, datasets = later("mteb"), later("mteb.abstasks"), later("datasets")


def at_hand(
    base: type[AbsTask],
    data: dict,
    name: str,
    kind: str,
    main_score: str,
    modalities: Sequence[str] = ("text",),
    **more,
) -> type[AbsTask]:
    """A kind of task with this data."""

    def load_data(self, *_: object, **__: object) -> None:
        self.dataset, self.data_loaded = data, True

    fields = {"name": name, "type": kind, "main_score": main_score, "modalities": list(modalities)}
    fields |= {"dataset": {"path": "local", "revision": "1"}, "description": "At hand.", "eval_langs": ["eng-Latn"]}
    return type(name, (base,), {"metadata": mteb.TaskMetadata(**fields), "load_data": load_data, **more})


def sts_task(pairs: Pairs, name: str = "LocalSTS") -> type[AbsTask]:
    rows = {"sentence1": pairs.first, "sentence2": pairs.second, "score": pairs.gold.tolist()}
    return at_hand(abstasks.AbsTaskSTS, {"test": datasets.Dataset.from_dict(rows)}, name, "STS", "cosine_spearman")


def retrieval_task(folder: Path, name: str = "LocalRetrieval") -> type[AbsTask]:
    """Of a folder in BEIR's layout, which mteb's own loader takes from the hub alone."""
    lines = {name: (folder / f"{name}.jsonl").read_text().splitlines() for name in ("corpus", "queries")}
    corpus, queries = ([json.loads(line) for line in lines[name]] for name in ("corpus", "queries"))
    judged: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        judged.setdefault(query, {})[document] = int(grade)
    documents = [{"id": each["_id"], "title": each["title"], "text": each["text"]} for each in corpus]
    asked = [{"id": each["_id"], "text": each["text"]} for each in queries if each["_id"] in judged]
    split = {"corpus": datasets.Dataset.from_list(documents), "queries": datasets.Dataset.from_list(asked)}
    split |= {"relevant_docs": judged, "top_ranked": None}
    return at_hand(abstasks.AbsTaskRetrieval, {"default": {"test": split}}, name, "Retrieval", "ndcg_at_10")


def clustering_task(sentences: list[str], labels: list[int], name: str = "LocalClustering") -> type[AbsTask]:
    """It draws which sentences it scores."""
    data = {"test": datasets.Dataset.from_dict({"sentences": sentences, "labels": labels})}
    drawn = {"max_fraction_of_documents_to_embed": 0.5, "max_documents_per_cluster": 8, "n_clusters": 3}
    return at_hand(abstasks.AbsTaskClustering, data, name, "Clustering", "v_measure", **drawn)


def register(patch: pytest.MonkeyPatch, *kinds: type[AbsTask]) -> str:
    """Makes mteb know tasks by their names; what --tasks takes for them."""
    known = mteb.get_task.__globals__["_TASKS_REGISTRY"]
    for kind in kinds:
        patch.setitem(known, kind.metadata.name, kind)
    return ",".join(f"mteb:{kind.metadata.name}" for kind in kinds)
