import dataclasses
import hashlib

import jax
import numpy as np
import pytest
from support.beir import write_beir
from support.data import raises

from simcse_jax.choices import STORAGES
from simcse_jax.evaluation import beir, retrieval
from simcse_jax.evaluation.evaluator import Retriever
from simcse_jax.evaluation.retrieval import Ranking, Retrieval, Sides, search, sides
from simcse_jax.index.placed import DTYPES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_beir(tmp_path_factory.mktemp("retrieval") / "tiny")


@pytest.fixture(scope="module")
def collection(folder):
    return beir.read(str(folder))


def coarse(sentences) -> np.ndarray:
    """Embeddings of small whole numbers, which follow from the words: many products are equal, and all are exact."""
    seeds = [int(hashlib.sha256(sentence.encode()).hexdigest()[:8], 16) for sentence in sentences]
    return np.array([np.random.default_rng(seed).integers(-1, 2, 4) for seed in seeds], np.float32).reshape(-1, 4)


def sorted_by_trec_eval(collection):
    """All documents of each query by score, then by id, the last one first; without the query's own."""
    scores = coarse(collection.first) @ coarse(collection.second).T
    orders = (sorted(range(len(of)), key=lambda row: (of[row], collection.ids[row]), reverse=True) for of in scores)
    return [[row for row in order if row != own] for order, own in zip(orders, collection.same_ids, strict=True)]


DOT = Sides(coarse, coarse, "dot")


@pytest.mark.parametrize("count", [1, 4, 17, 64])
def test_the_first_documents_are_trec_evals_also_where_a_tie_is_cut(collection, count, monkeypatch):
    monkeypatch.setattr(retrieval, "LARGE", 16)  # two blocks of this size, and two small ones
    monkeypatch.setattr(retrieval, "SMALL", 4)
    encoded = []
    model = Sides(coarse, lambda some: encoded.append(len(some)) or coarse(some), "dot")
    expected = [rows[:count] + [-1] * (count - len(rows)) for rows in sorted_by_trec_eval(collection)]
    scores = coarse(collection.first) @ coarse(collection.second).T
    assert any(len(set(of)) < 12 for of in scores)  # there are ties
    assert search(model, collection, count).tolist() == expected
    assert sum(encoded) < 40  # texts that repeat within a block are encoded once
    if count == 17:
        assert search(DOT, collection, count, devices=jax.devices()[:3]).tolist() == expected


def test_own_documents_are_left_out_and_all_are_rounded_and_encoded_in_the_model_s_way(collection, folder, tmp_path):
    nearest = search(DOT, collection, 1)[:, 0]
    changed = dataclasses.replace(collection, same_ids=np.where(np.arange(6) % 2, nearest, -1))
    expected = [rows[:4] for rows in sorted_by_trec_eval(changed)]
    assert search(DOT, changed, 4).tolist() == expected  # as many as are looked for at once
    assert (search(DOT, changed, 64) == nearest[:, None]).any(axis=1).tolist() == [row % 2 == 0 for row in range(6)]
    other = write_beir(tmp_path / "tiny")
    assert list(retrieval.read([str(folder)], "dev")) == ["tiny"]
    raises("another folder has the name tiny, too; rename one of them", retrieval.read, [str(folder), str(other)])
    assert set(STORAGES) == set(DTYPES)

    def fine(sentences):
        return coarse(sentences) + 1 / 3

    def rounded(storage):
        return lambda sentences: fine(sentences).astype(retrieval.stored(fine(["a"]), storage).dtype).astype(np.float32)

    for storage in ("float16", "bfloat16"):
        found = search(Sides(fine, fine, "dot"), collection, 40, storage)
        assert (found == search(Sides(fine, rounded(storage), "dot"), collection, 40)).all()
    large = Sides(coarse, lambda some: 1e6 * fine(some), "dot")
    raises("beyond float16; choose another storage", search, large, collection, 4, "float16")
    assert isinstance(TwoSided(), Retriever) and not isinstance(coarse, Retriever)
    assert sides(coarse) == Sides(coarse, coarse, "cosine")
    queries, documents = coarse([f"query {each}" for each in collection.first]), coarse(collection.second)
    nearest = np.argsort(np.linalg.norm(queries[:, None] - documents, axis=2), axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(search(sides(TwoSided()), collection, 3), nearest)


@dataclasses.dataclass
class TwoSided:
    """A model whose queries are encoded in another way than its documents."""

    similarity_fn_name: str = "euclidean"

    def __call__(self, sentences):
        raise AssertionError("neither a query nor a document")

    def encode_query(self, sentences):
        return coarse([f"query {sentence}" for sentence in sentences])

    def encode_document(self, sentences):
        return coarse(sentences)


def test_scores_tables_the_average_over_tasks_and_the_differences_to_a_baseline(folder, collection):
    dev = beir.read(str(folder), "dev", documents=30)
    found = Retrieval({"one": collection, "two": dev}, ["recall@10", "ndcg@5"])
    numbers = found(coarse)
    by_query = Retrieval({"one": collection}, ["recall@10"], per_query=True)(coarse)["retrieval"]["one"]["per_query"]
    expected = 100 * (collection.gains(search(sides(coarse), collection, 10)) > 0).sum(axis=1) / 2
    assert by_query == {"recall@10": dict(zip(collection.query_ids, expected.tolist(), strict=True))}
    one, two = numbers["retrieval"]["one"], numbers["retrieval"]["two"]
    assert one["recall@10"] == pytest.approx(expected.mean(), abs=1e-4) and "per_query" not in one
    assert (two["queries"], two["documents"], two["corpus"]) == (3, 30, 40)
    assert numbers["retrieval_average"]["ndcg@5"] == pytest.approx((one["ndcg@5"] + two["ndcg@5"]) / 2, abs=1e-4)
    header, _, *lines = found.table(numbers).splitlines()
    assert [cell.strip() for cell in header.split("|")] == ["", "Recall@10", "nDCG@5"]
    assert [line.split("|")[0].strip() for line in lines] == ["one", "two", "average"]
    assert "two: 3 queries, 30 of 40 documents" in found.protocol
    chooses = Ranking("eval/it", found)
    assert chooses(coarse) == {"eval/it": numbers["retrieval_average"]["recall@10"]}
    assert len(chooses.fingerprint) == 129

    def other(sentences):
        return coarse([f"{sentence}!" for sentence in sentences])

    plain = Retrieval({"tiny": collection}, ["ndcg@10"], per_query=True)
    earlier, mine = plain(other), plain(coarse)
    found = plain.with_baseline(earlier, "--baseline a.json")(coarse)
    difference = mine["retrieval"]["tiny"]["ndcg@10"] - earlier["retrieval"]["tiny"]["ndcg@10"]
    compared = found["retrieval"]["tiny"]["compared"]["ndcg@10"]
    values = [list(each["retrieval"]["tiny"]["per_query"]["ndcg@10"].values()) for each in (mine, earlier)]
    assert compared == {"difference": pytest.approx(difference, abs=2e-4), "p": retrieval.paired_p(*values)}
    assert f"{difference:+.2f} (p = {compared['p']:.3f})" in plain.table(found)
    assert plain.with_baseline(None, "") is plain


def test_a_baseline_of_something_else_is_refused(collection):
    for change, message in (
        ({"tiny": None}, "of each query of the retrieval task tiny"),
        ({"sha256": "0"}, "was scored on other queries, documents or judgements"),
        ({"per_query": None}, "has not the ndcg@10 of each query"),
        ({"ndcg@10": 3.0}, "has not the ndcg@10 of each query"),
        ({"q3": "many"}, "has not the ndcg@10 of each query"),
    ):
        queries = {f"q{number}": 50.0 for number in range(6)}
        measures = {"ndcg@10": {name: change.get(name, score) for name, score in queries.items()}} | change
        earlier = {"retrieval": {"tiny": ({"sha256": collection.fingerprint, "per_query": measures} | change)} | change}
        for part in ("--baseline a.json: ", message):
            raises(part, Retrieval({"tiny": collection}, ["ndcg@10"]).with_baseline, earlier, "--baseline a.json")
